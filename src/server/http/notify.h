/* What systemd wants to know of a service: a datagram to $NOTIFY_SOCKET, where there is one. */
#pragma once

void notify_ready(void);
void notify_stopping(void);
