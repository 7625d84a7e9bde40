/* Fuzzes the receiver of marks with arbitrary datagrams on its socket, including hello messages
 * with the path of a reply socket. All inputs go to the same receiver, so peers added by earlier
 * inputs still exist. */
#include <stdio.h>

#include "base/err.h"
#include "base/loop.h"
#include "mark/receiver.h"
#include "profile/kept.h"
#include "target.h"

static struct loop *loop;
static struct mark_receiver *receiver;
static struct kept_lists kept;

static void on_mark(void *user, const struct mark *mark)
{
    char text[KEPT_TEXT_MAX];
    (void)user;
    kept_take(&kept, mark);
    const struct kept_list *list = kept_of(&kept, mark->pid);
    for (size_t i = 0; list && i < list->count; i++)
        kept_text(text, list, i);
    json_decref(kept_json(list));
}

static void make_receiver(void)
{
    struct err err = {""};
    if (loop_new(&loop) < 0 || mark_receiver_new(loop, on_mark, NULL, &receiver, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

static void remove_receiver(void)
{
    mark_receiver_free(receiver);
    loop_free(loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct mark_peer *peers;
    if (!loop) {
        make_receiver();
        atexit(remove_receiver);
    }
    const uint8_t *middle = size ? memchr(data, '\0', size) : NULL;
    size_t first = middle ? (size_t)(middle - data) : size;
    if (first < 65536 && size - first < 65536) {
        mark_send(mark_receiver_path(receiver), (const char *)data, first, 0);
        if (middle)
            mark_send(mark_receiver_path(receiver), (const char *)middle + 1, size - first - 1, 0);
        loop_once(loop, 0);
    }
    size_t n = mark_receiver_peers(receiver, &peers);
    if (n > MARK_PEERS_MAX)
        abort();
    for (size_t i = 0; i < n; i++)
        if (peers[i].reply[0] != '/' ||
            strnlen(peers[i].reply, sizeof peers[i].reply) == sizeof peers[i].reply)
            abort();
    return 0;
}
