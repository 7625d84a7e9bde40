/* The run that is meant by a folder or a pid, and asking it for a fresh reading of the heap. */
#include "cli/heap_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/number.h"
#include "cli/ask.h"
#include "cli/census.h"

enum { RUN_JSON_MAX = 16 << 20, ANSWER_S = 10 };

static void take_socket(struct heap_run *run, const char *marks)
{
    if (marks && strlen(marks) < sizeof run->marks && access(marks, F_OK) == 0)
        memcpy(run->marks, marks, strlen(marks) + 1);
}

static void take_obstacle(struct heap_run *run, const json_t *heap)
{
    const char *trouble = json_string_value(json_object_get(heap, "trouble"));
    if (json_is_false(json_object_get(heap, "on")))
        snprintf(run->obstacle, sizeof run->obstacle, "%s",
                 trouble ? trouble : "it was run with --no-heap or EBB_HEAP=0");
}

static int find_by_folder(const char *folder, struct heap_run *run, struct err *err)
{
    AUTO_CLOSE int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct buf text = {0};
    struct err why = {""};
    if (fd < 0)
        return err_set(err, -errno, "%s: %s; a run folder or a pid is meant", folder,
                       strerror(errno));
    if (strlen(folder) >= sizeof run->folder)
        return err_set(err, -ENAMETOOLONG, "%s is too long a path", folder);
    int r = io_read_all(fd, "run.json", RUN_JSON_MAX, &text);
    json_t *facts = r == 0 ? json_parse(buf_str(&text), text.len, &why) : NULL;
    const char *state = json_string_value(json_object_get(facts, "state"));
    memcpy(run->folder, folder, strlen(folder) + 1);
    if (state && strcmp(state, "running") == 0)
        take_socket(run, json_string_value(json_object_get(facts, "socket")));
    take_obstacle(run, json_object_get(facts, "heap"));
    json_decref(facts);
    buf_fini(&text);
    return 0;
}

/* A launcher, and `ebb run` itself, stand for what is below them. */
static int find_by_pid(const struct proc_root *root, int32_t pid, struct heap_run *run,
                       struct err *err)
{
    int ignored;
    AUTO_FREE char *own = census_environment(root, pid, "EBB_SOCKET", &ignored);
    int32_t of = own ? pid : census_find_below(root, pid);
    AUTO_FREE char *marks = of ? census_environment(root, of, "EBB_SOCKET", &ignored) : NULL;
    AUTO_FREE char *folder = of ? census_environment(root, of, "EBB_RUN_DIR", &ignored) : NULL;
    (void)err;
    run->pid = pid;
    if (!folder || strlen(folder) >= sizeof run->folder)
        return 0;
    memcpy(run->folder, folder, strlen(folder) + 1);
    run->pid = own ? pid : 0;
    take_socket(run, marks);
    return 0;
}

int heap_run_find(const struct proc_root *root, const char *operand, struct heap_run *ret,
                  struct err *err)
{
    int64_t pid;
    *ret = (struct heap_run){0};
    if (number_parse_i64(operand, strlen(operand), &pid) < 0)
        return find_by_folder(operand, ret, err);
    if (pid <= 0 || pid > INT32_MAX)
        return err_set(err, -EINVAL, "\"%.32s\" is no process", operand);
    return find_by_pid(root, (int32_t)pid, ret, err);
}

int heap_run_refresh(const struct heap_run *run, int32_t pid, struct err *err)
{
    char query[64];
    if (!run->marks[0])
        return 0;
    snprintf(query, sizeof query, "KIND=query\nNAME=heap\nPID=%" PRId32 "\n", pid);
    json_t *answer = ask_supervisor(run->marks, query, ANSWER_S * NS_PER_S, err);
    json_decref(answer);
    return answer ? 0 : -EIO;
}
