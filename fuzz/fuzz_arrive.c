/* Fuzzes the socket that receives heap tables: arbitrary packets with arbitrary descriptors. The
 * first byte is the number of descriptors, the second selects their types, and the third is the
 * position at which the rest is split into two packets. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/loop.h"
#include "heap/table.h"
#include "profile/table_socket.h"
#include "profile/live_table.h"
#include "target.h"

enum { FDS_MAX = 6, KINDS = 4 };

static struct {
    struct loop *loop;
    struct table_socket *arrive;
    char dir[64];
    struct sockaddr_un address;
    /* descriptors to send: a heap table, a table file that may shrink, a pipe and a folder */
    int kind[KINDS];
    int first; /* lowest free descriptor before the first input */
    unsigned came;
} s;

static void must(bool is_true)
{
    if (!is_true)
        abort();
}

static void on_table(void *user, int32_t pid, int fd)
{
    struct live_table table;
    (void)user;
    must(pid == getpid());
    s.came++;
    if (live_table_open(fd, pid, &table, NULL) == 0)
        live_table_close(&table);
}

static int make_table(int seals)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct heap_header head = {.version = HEAP_TABLE_VERSION,
                               .table_bytes = sizeof(struct heap_table)};
    memcpy(head.magic, HEAP_TABLE_MAGIC, sizeof head.magic);
    must(fd >= 0 && ftruncate(fd, sizeof(struct heap_table)) == 0 &&
         pwrite(fd, &head, sizeof head, 0) == sizeof head && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

/* Checks that no descriptor leaked: all descriptors that were free before the first input are
 * free. */
static bool is_tidy(void)
{
    for (int fd = s.first; fd < s.first + 2 * FDS_MAX + 4; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return false;
    return true;
}

static void stop(void)
{
    table_socket_free(s.arrive);
    loop_free(s.loop);
    rmdir(s.dir);
}

static void start(void)
{
    const char *parent = getenv("TMPDIR");
    int ends[2];
    snprintf(s.dir, sizeof s.dir, "%.40s/ebb-fuzz-XXXXXX", parent ? parent : "/tmp");
    must(mkdtemp(s.dir) && pipe2(ends, O_CLOEXEC) == 0);
    s.kind[0] = make_table(F_SEAL_SHRINK | F_SEAL_GROW);
    s.kind[1] = make_table(0);
    s.kind[2] = ends[0];
    s.kind[3] = open(s.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s.address.sun_family = AF_UNIX;
    snprintf(s.address.sun_path, sizeof s.address.sun_path, "%s/heap", s.dir);
    must(loop_new(&s.loop) == 0 &&
         table_socket_new(s.loop, s.address.sun_path, on_table, NULL, &s.arrive, NULL) == 0);
    s.first = dup(s.kind[0]);
    close(s.first);
    atexit(stop);
}

static void send_packet(int fd, const uint8_t *data, size_t size, size_t fds, unsigned kinds)
{
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    int sent[FDS_MAX];
    struct iovec iov = {(void *)(uintptr_t)data, size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    for (size_t i = 0; i < fds; i++)
        sent[i] = s.kind[kinds >> i % 4 * 2 & 3];
    if (fds > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                              .cmsg_type = SCM_RIGHTS,
                              .cmsg_len = CMSG_LEN(fds * sizeof(int))};
        memcpy(CMSG_DATA(c), sent, fds * sizeof(int));
    }
    (void)!sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!s.loop)
        start();
    if (size < 3)
        return 0;
    size_t fds = data[0] % (FDS_MAX + 1), rest = size - 3, first = data[2] < rest ? data[2] : rest;
    const uint8_t *packet = data + 3;
    unsigned came = s.came;
    uint64_t refused = table_socket_refused(s.arrive);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(fd >= 0 && connect(fd, (struct sockaddr *)&s.address, sizeof s.address) == 0);
    if (data[0] & 128)
        loop_once(s.loop, 0); /* The receiver is waiting for the rest of an incomplete packet. */
    send_packet(fd, packet, first, fds, data[1]);
    if (first < rest)
        send_packet(fd, packet + first, rest - first, fds, data[1]);
    loop_once(s.loop, 0);
    close(fd);
    for (int i = 0; i < 8 && s.came == came && table_socket_refused(s.arrive) == refused; i++)
        loop_once(s.loop, 0);
    bool is_hello = fds > 0 && first >= sizeof(struct heap_hello) &&
                    memcmp(packet, HEAP_TABLE_MAGIC, strlen(HEAP_TABLE_MAGIC)) == 0;
    must(s.came == came + is_hello && table_socket_refused(s.arrive) == refused + !is_hello);
    must(is_tidy());
    return 0;
}
