/* On which sockets the processes of a tree listen: their fds name the sockets, /proc/PID/net the
 * addresses. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guard/leavings_private.h"

enum { OWNED_MAX = 8192, SPACES_MAX = 16, FDS_MAX = 4096, TABLE_MAX = 16 << 20 };

/* A socket that a process of the job has open. */
struct owned {
    uint64_t ino;
    uint32_t slot; /* in order of birth */
    int32_t pid;
};

struct search {
    struct leavings *l;
    struct proc_tree *tree;
    struct owned *owned; /* by inode, once all are there */
    size_t count;
    uint64_t spaces[SPACES_MAX]; /* network namespaces that have been read */
    size_t space_count;
};

/* The tables. */

struct field {
    const char *p;
    size_t len;
};

/* Cuts LINE at blanks into MAX fields, of which the last is all the rest. */
static size_t split(const char *line, size_t len, struct field *ret, size_t max)
{
    const char *p = line, *end = line + len;
    size_t count = 0;
    while (count < max) {
        while (p < end && *p == ' ')
            p++;
        if (p == end)
            break;
        const char *stop = memchr(p, ' ', (size_t)(end - p));
        if (stop == NULL || count + 1 == max)
            stop = end;
        ret[count++] = (struct field){p, (size_t)(stop - p)};
        p = stop;
    }
    return count;
}

static int parse_number(const struct field *f, int base, uint64_t *ret)
{
    char text[24], *end;
    if (f->len == 0 || f->len >= sizeof(text) || f->p[0] == '-' || f->p[0] == '+')
        return -EBADMSG;
    memcpy(text, f->p, f->len);
    text[f->len] = '\0';
    errno = 0;
    unsigned long long v = strtoull(text, &end, base);
    if (errno != 0 || *end != '\0')
        return -EBADMSG;
    *ret = v;
    return 0;
}

/* "0100007F:1F90": words of the address as this machine's memory holds them, so that putting them
 * back into memory gives network order on any machine; the port is a plain number. */
static int parse_address(const struct field *f, char ret[112])
{
    const char *colon = memchr(f->p, ':', f->len);
    size_t digits = colon == NULL ? 0 : (size_t)(colon - f->p);
    uint32_t words[4];
    uint64_t v, port;
    char text[INET6_ADDRSTRLEN];
    if (digits != 8 && digits != 32)
        return -EBADMSG;
    for (size_t i = 0; i < digits / 8; i++) {
        if (parse_number(&(struct field){f->p + i * 8, 8}, 16, &v) < 0)
            return -EBADMSG;
        words[i] = (uint32_t)v;
    }
    if (parse_number(&(struct field){colon + 1, f->len - digits - 1}, 16, &port) < 0 ||
        port > UINT16_MAX)
        return -EBADMSG;
    bool six = digits == 32;
    if (inet_ntop(six ? AF_INET6 : AF_INET, words, text, sizeof(text)) == NULL)
        return -EBADMSG;
    snprintf(ret, 112, six ? "[%s]:%u" : "%s:%u", text, (unsigned)port);
    return 0;
}

int leavings_tcp_parse(const char *line, size_t len, uint64_t *ret_ino, char ret_address[112])
{
    /* sl local remote state tx:rx tr:when retransmits uid timeout inode … */
    enum { LOCAL = 1, STATE = 3, INODE = 9, LISTENING = 0x0a };
    struct field f[INODE + 2];
    uint64_t state, ino;
    if (split(line, len, f, INODE + 2) <= INODE || parse_number(&f[STATE], 16, &state) < 0 ||
        parse_number(&f[INODE], 10, &ino) < 0)
        return -EBADMSG;
    if (state != LISTENING)
        return -ENOENT;
    if (parse_address(&f[LOCAL], ret_address) < 0)
        return -EBADMSG;
    *ret_ino = ino;
    return 0;
}

int leavings_unix_parse(const char *line, size_t len, uint64_t *ret_ino, char ret_address[112])
{
    /* number: references protocol flags type state inode path */
    enum { FLAGS = 3, INODE = 6, PATH = 7, LISTENING = 0x10000 };
    struct field f[PATH + 1];
    uint64_t flags, ino;
    size_t count = split(line, len, f, PATH + 1);
    if (count <= INODE || parse_number(&f[FLAGS], 16, &flags) < 0 ||
        parse_number(&f[INODE], 10, &ino) < 0)
        return -EBADMSG;
    if (!(flags & LISTENING) || count <= PATH)
        return -ENOENT;
    snprintf(ret_address, 112, "%.*s", (int)(f[PATH].len < 111 ? f[PATH].len : 111), f[PATH].p);
    *ret_ino = ino;
    return 0;
}

/* Sockets and their processes. */

static int compare_owned(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;
    return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static int compare_by_birth(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;
    int by_ino = compare_owned(a, b);
    return by_ino != 0 ? by_ino : x->slot < y->slot ? -1 : x->slot > y->slot;
}

static bool is_listed(const struct leavings *l, int32_t pid, const char *address)
{
    for (size_t i = 0; i < l->socket_count; i++)
        if (l->sockets[i].pid == pid && strcmp(l->sockets[i].address, address) == 0)
            return true;
    return false;
}

static void add_listener(struct search *s, uint64_t ino, const char *address)
{
    struct leavings *l = s->l;
    const struct owned key = {.ino = ino};
    struct owned *owned = bsearch(&key, s->owned, s->count, sizeof(key), compare_owned);
    struct proc_node *node = owned == NULL ? NULL : proc_tree_find(s->tree, owned->pid);
    if (node == NULL || l->socket_count == LEAVINGS_SOCKETS || is_listed(l, owned->pid, address))
        return;
    struct leavings_socket *socket = &l->sockets[l->socket_count++];
    *socket = (struct leavings_socket){.pid = owned->pid};
    snprintf(socket->name, sizeof(socket->name), "%.15s", node->info.comm);
    snprintf(socket->address, sizeof(socket->address), "%s", address);
}

typedef int parse_fn(const char *line, size_t len, uint64_t *ret_ino, char ret_address[112]);

static void read_table(struct search *s, struct proc_node *node, const char *name, parse_fn *parse)
{
    AUTO_CLOSE int fd = proc_node_open(s->tree, node, name, O_RDONLY);
    char text[16384];
    size_t len = 0, total = 0;
    for (ssize_t n; fd >= 0 && total < TABLE_MAX; total += (size_t)n) {
        n = read(fd, text + len, sizeof(text) - len);
        if (n <= 0)
            break;
        len += (size_t)n;
        const char *p = text;
        for (const char *end; (end = memchr(p, '\n', len)) != NULL; p = end + 1) {
            char address[112];
            uint64_t ino;
            if (parse(p, (size_t)(end - p), &ino, address) == 0)
                add_listener(s, ino, address);
            len -= (size_t)(end + 1 - p);
        }
        memmove(text, p, len);
    }
}

static bool is_new_space(struct search *s, struct proc_node *node)
{
    AUTO_CLOSE int dir = proc_node_open(s->tree, node, "ns", O_RDONLY | O_DIRECTORY);
    struct stat st;
    if (dir < 0 || fstatat(dir, "net", &st, 0) < 0)
        st.st_ino = 0; /* not to be known: all of these are taken for one */
    for (size_t i = 0; i < s->space_count; i++)
        if (s->spaces[i] == st.st_ino)
            return false;
    if (s->space_count == SPACES_MAX)
        return false;
    s->spaces[s->space_count++] = st.st_ino;
    return true;
}

static void collect(struct search *s, struct proc_node *node)
{
    int fds = proc_node_open(s->tree, node, "fd", O_RDONLY | O_DIRECTORY);
    DIR *dir = fds < 0 ? NULL : fdopendir(fds);
    if (dir == NULL) {
        if (fds >= 0)
            close(fds);
        return;
    }
    const struct dirent *e;
    for (int looked = 0; looked < FDS_MAX && s->count < OWNED_MAX && (e = readdir(dir)) != NULL;
         looked++) {
        char link[64];
        unsigned long long ino;
        ssize_t len = readlinkat(fds, e->d_name, link, sizeof(link) - 1);
        if (len <= 0)
            continue;
        link[len] = '\0';
        if (sscanf(link, "socket:[%llu]", &ino) == 1)
            s->owned[s->count++] = (struct owned){ino, node->slot, node->info.id.pid};
    }
    closedir(dir);
}

/* A socket that was handed on by fork is the eldest's. */
static void sort_owned(struct search *s)
{
    qsort(s->owned, s->count, sizeof(*s->owned), compare_by_birth);
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++)
        if (kept == 0 || s->owned[kept - 1].ino != s->owned[i].ino)
            s->owned[kept++] = s->owned[i];
    s->count = kept;
}

void leavings_sockets(struct leavings *l, struct proc_tree *tree)
{
    AUTO_FREE struct owned *owned = calloc(OWNED_MAX, sizeof(*owned));
    struct search s = {.l = l, .tree = tree, .owned = owned};
    if (owned == NULL)
        return;
    for (size_t i = 0; i < proc_tree_count(tree); i++)
        collect(&s, proc_tree_at(tree, i));
    if (s.count == 0)
        return;
    sort_owned(&s);
    for (size_t i = 0; i < proc_tree_count(tree); i++) {
        struct proc_node *node = proc_tree_at(tree, i);
        if (!is_new_space(&s, node))
            continue;
        read_table(&s, node, "net/tcp", leavings_tcp_parse);
        read_table(&s, node, "net/tcp6", leavings_tcp_parse);
        read_table(&s, node, "net/unix", leavings_unix_parse);
    }
}

size_t leavings_socket_list(const struct leavings *l, const struct leavings_socket **ret)
{
    *ret = l->sockets;
    return l->socket_count;
}
