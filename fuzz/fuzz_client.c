/* Fuzzes the parser of server responses in `ebb submit`, `ebb logs` and the other client commands:
 * any program may listen on the socket. */
#include <sys/socket.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/client.h"
#include "target.h"

static int take(void *user, const char *data, size_t len)
{
    uint64_t *sum = user;
    for (size_t i = 0; i < len; i++)
        *sum += (unsigned char)data[i];
    return *sum == 42 ? -1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd[2];
    struct err err = {""};
    struct client_answer answer;
    uint64_t sum = 0;
    if (size == 0 || size > 100000)
        return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0 ||
        send(fd[1], data + 1, size - 1, MSG_DONTWAIT) < 0)
        abort();
    close(fd[1]);
    struct client_request q = {
        .method = "GET", .path = "/", .fn = data[0] % 2 ? take : NULL, .user = &sum};
    if (client_receive(fd[0], &q, &answer, &err) == 0 && !q.fn && !answer.doc)
        abort();
    client_answer_fini(&answer);
    close(fd[0]);
    return 0;
}
