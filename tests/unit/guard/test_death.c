/* Tests that the cause of a job's end is found in its output and in other facts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "guard/death.h"

/* The OOM counters of the job's cgroup are fake, because cgroup.c has its own tests. */
static int group_result;
static uint64_t group_count;
int guard_cgroup_oom_kills(const struct guard_cgroup *g, uint64_t *ret)
{
    assert_non_null(g);
    if (group_result == 0)
        *ret = group_count;
    return group_result;
}

#define HEAD "Traceback (most recent call last):\n"
#define BODY                                                                                       \
    "  File \"/home/u/train.py\", line 41, in <module>\n"                                          \
    "    main()\n"                                                                                 \
    "    ^^^^^^\n"                                                                                 \
    "  File \"/home/u/train.py\", line 12, in main\n"                                              \
    "    loss = step(batch)\n"
#define TORCHRUN_HEAD                                                                              \
    "W0501 10:00:01.123000 139 torch/distributed/elastic/multiprocessing/api.py:897] Sending "     \
    "process 4242 closing signal SIGTERM\n"                                                        \
    "E0501 10:00:01.300000 139 torch/distributed/elastic/multiprocessing/api.py:869] failed "      \
    "(exitcode: 1) local_rank: 0 (pid: 4241) of binary: /usr/bin/python3\n" HEAD                   \
    "  File \"/usr/local/bin/torchrun\", line 8, in <module>\n"                                    \
    "    sys.exit(main())\n"                                                                       \
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"                        \
    "============================================================\n"                               \
    "train.py FAILED\n"                                                                            \
    "------------------------------------------------------------\n"                               \
    "Failures:\n"                                                                                  \
    "[1]:\n"                                                                                       \
    "  time      : 2024-05-01_10:00:01\n"                                                          \
    "  host      : node7\n"                                                                        \
    "  rank      : 3 (local_rank: 3)\n"                                                            \
    "  exitcode  : 1 (pid: 4244)\n"                                                                \
    "  error_file: <N/A>\n"                                                                        \
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n" \
    "------------------------------------------------------------\n"                               \
    "Root Cause (first observed failure):\n"                                                       \
    "[0]:\n"                                                                                       \
    "  time      : 2024-05-01_10:00:00\n"                                                          \
    "  host      : node7\n"
#define TORCHRUN(rank, code, traceback)                                                            \
    TORCHRUN_HEAD "  rank      : " rank " (local_rank: " rank ")\n"                                \
                  "  exitcode  : " code " (pid: 4241)\n"                                           \
                  "  error_file: <N/A>\n"                                                          \
                  "  traceback : " traceback "\n"                                                  \
                  "============================================================\n"
#define SEE "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
#define CHAINED "\nDuring handling of the above exception, another exception occurred:\n\n"
#define CAUSED "\nThe above exception was the direct cause of the following exception:\n\n"

struct ending {
    const char *tail;
    enum death_sign sign;
    const char *line;
};

static struct death_tail tail_of(const char *text, size_t len)
{
    struct death_tail t = {.written = 0};
    death_tail_add(&t, text, len);
    return t;
}

static enum death_sign read_end(const struct death_tail *t, char line[DEATH_LINE])
{
    struct death_reading r;
    death_reading_take(t, &r);
    memcpy(line, r.line, DEATH_LINE);
    return r.sign;
}

static void check(const struct ending *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char line[DEATH_LINE];
        struct death_tail t = tail_of(e[i].tail, strlen(e[i].tail));
        enum death_sign sign = read_end(&t, line);
        if (sign != e[i].sign || strcmp(line, e[i].line) != 0)
            fail_msg("%zu: sign %d, not %d: '%s', not '%s', for:\n%s", i, (int)sign, (int)e[i].sign,
                     line, e[i].line, e[i].tail);
    }
}
#define CHECK(table) check(table, sizeof(table) / sizeof *(table))

static void cause_of_death_is_the_last_exception_of_the_traceback(void **state)
{
    (void)state;
    static const struct ending table[] = {
        {"", DEATH_NO_SIGN, ""},
        {"epoch 3: loss 0.12\nsaved to out/\n", DEATH_NO_SIGN, ""},
        {"epoch 1\n" HEAD BODY "ValueError: shape mismatch: (3,) and (4,)\n", DEATH_PYTHON,
         "ValueError: shape mismatch: (3,) and (4,)"},
        /* Exceptions without a final newline, without a message, with a module name, or of a class
         * that is defined in a function. */
        {HEAD BODY "AssertionError", DEATH_PYTHON, "AssertionError"},
        {HEAD BODY "a.b.C: \n", DEATH_PYTHON, "a.b.C"},
        {HEAD BODY "lib.f.<locals>.Größe2: x\n", DEATH_PYTHON, "lib.f.<locals>.Größe2: x"},
        {HEAD "KeyboardInterrupt\n", DEATH_PYTHON, "KeyboardInterrupt"},
        {"^C" HEAD BODY "KeyboardInterrupt\n", DEATH_PYTHON, "KeyboardInterrupt"},
        {HEAD BODY "  [Previous line repeated 996 more times]\n"
                   "RecursionError: maximum recursion depth exceeded\n",
         DEATH_PYTHON, "RecursionError: maximum recursion depth exceeded"},
        /* The exception's message has several lines. */
        {HEAD BODY "RuntimeError: Error(s) in loading state_dict for Net:\n"
                   "\tMissing key(s) in state_dict: \"a\".\n\tUnexpected key(s): \"b\".\n",
         DEATH_PYTHON, "RuntimeError: Error(s) in loading state_dict for Net"},
        {HEAD BODY "subprocess.CalledProcessError: Command '['false']' returned non-zero exit "
                   "status 1.\n",
         DEATH_PYTHON,
         "subprocess.CalledProcessError: Command '['false']' returned non-zero exit status 1."},
        /* Exceptions are chained in both ways that Python supports. */
        {HEAD BODY "KeyError: 'a'\n" CHAINED HEAD BODY "ValueError: no a\n", DEATH_PYTHON,
         "ValueError: no a"},
        {HEAD BODY "KeyError: 'a'\n" CAUSED HEAD BODY "ValueError: no a\n", DEATH_PYTHON,
         "ValueError: no a"},
        {HEAD BODY "KeyError: 'a'\n" CHAINED HEAD BODY "SystemExit: 1\n", DEATH_PYTHON,
         "KeyError: 'a'"},
        /* The main script does not compile, so its traceback has no first line. */
        {"  File \"/home/u/train.py\", line 3\n    def f(:\n          ^\n"
         "SyntaxError: invalid syntax\n",
         DEATH_PYTHON, "SyntaxError: invalid syntax"},
        {HEAD BODY "  File \"/home/u/net.py\", line 3\n    def f(:\n          ^\n"
                   "IndentationError: unexpected indent\n",
         DEATH_PYTHON, "IndentationError: unexpected indent"},
        /* The ring buffer truncated the start of the traceback. */
        {"ain.py\", line 41, in <module>\n    main()\n  File \"/home/u/t.py\", line 12, in main\n"
         "    x()\nIndexError: list index out of range\n",
         DEATH_PYTHON, "IndexError: list index out of range"},
        {"Error executing job with overrides: ['lr=1']\n" HEAD BODY "ValueError: lr\n\n"
         "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
         DEATH_PYTHON, "ValueError: lr"},
        /* Another process writes between the lines of the traceback. */
        {HEAD BODY "epoch 3 of 10\nINFO: saved\nValueError: x\n", DEATH_PYTHON, "ValueError: x"},
    };
    CHECK(table);
}

static void cause_of_death_is_the_original_exception_of_the_worker(void **state)
{
    (void)state;
    static const struct ending table[] = {
        {"  + Exception Group Traceback (most recent call last):\n"
         "  |   File \"/home/u/g.py\", line 9, in <module>\n"
         "  |     raise ExceptionGroup(\"many\", errors)\n"
         "  | ExceptionGroup: many (2 sub-exceptions)\n"
         "  +-+---------------- 1 ----------------\n"
         "    | Traceback (most recent call last):\n"
         "    |   File \"/home/u/g.py\", line 4, in <module>\n"
         "    |     raise ValueError(1)\n"
         "    | ValueError: 1\n"
         "    +---------------- 2 ----------------\n"
         "    | TypeError: 2\n"
         "    +------------------------------------\n",
         DEATH_PYTHON, "ValueError: 1"},
        {HEAD BODY "RuntimeError: Caught KeyError in DataLoader worker process 0.\n"
                   "Original Traceback (most recent call last):\n" BODY "KeyError: 'label'\n\n",
         DEATH_PYTHON, "KeyError: 'label'"},
        {"multiprocessing.pool.RemoteTraceback: \n\"\"\"\n" HEAD BODY
         "ValueError: boom\n\"\"\"\n" CAUSED HEAD BODY "ValueError: boom\n",
         DEATH_PYTHON, "ValueError: boom"},
        {HEAD BODY "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
                   "-- Process 1 terminated with the following error:\n" HEAD BODY
                   "ZeroDivisionError: division by zero\n\n",
         DEATH_PYTHON, "ZeroDivisionError: division by zero"},
        {HEAD BODY
         "RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed. \n" CAUSED HEAD
             BODY "RuntimeError: DataLoader worker (pid(s) 123) exited unexpectedly\n",
         DEATH_WORKER, "RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed."},
        {HEAD BODY "RuntimeError: DataLoader worker (pid(s) 7, 8) exited unexpectedly\n",
         DEATH_WORKER, "RuntimeError: DataLoader worker (pid(s) 7, 8) exited unexpectedly"},
        {HEAD BODY "RuntimeError: DataLoader worker (pid 9) is killed by signal: Segmentation "
                   "fault. \n",
         DEATH_WORKER,
         "RuntimeError: DataLoader worker (pid 9) is killed by signal: Segmentation fault."},
        /* The loader's thread fails as a consequence of the failure in the main thread. */
        {HEAD BODY "ValueError: real\nException in thread Thread-4 (_pin_memory_loop):\n" HEAD BODY
                   "ConnectionResetError: [Errno 104] Connection reset by peer\n",
         DEATH_PYTHON, "ValueError: real"},
        {"Exception in thread Thread-1 (run):\n" HEAD BODY "KeyError: 'only'\n", DEATH_PYTHON,
         "KeyError: 'only'"},
        {"Process SpawnProcess-1:\n" HEAD BODY "KeyError: 'child'\n" HEAD BODY "EOFError: parent\n",
         DEATH_PYTHON, "EOFError: parent"},
    };
    CHECK(table);
}

static void cause_of_death_is_the_exception_of_the_first_failed_rank(void **state)
{
    (void)state;
#define R0 "[rank0]: "
#define R3 "[rank3]: "
#define RANK_BODY(r)                                                                               \
    r "Traceback (most recent call last):\n" r "  File \"/home/u/t.py\", line 2, in <module>\n" r  \
      "    main()\n"
    static const struct ending table[] = {
        {RANK_BODY(R0) R0 "ValueError: rank\n", DEATH_PYTHON, "ValueError: rank"},
        {"[default0]:Traceback (most recent call last):\n"
         "[default0]:  File \"/home/u/t.py\", line 2, in <module>\n[default0]:ValueError: tee\n",
         DEATH_PYTHON, "ValueError: tee"},
        {"(RayTrainWorker pid=7) Traceback (most recent call last):\n"
         "(RayTrainWorker pid=7)   File \"/home/u/t.py\", line 2, in f\n"
         "(RayTrainWorker pid=7) ValueError: ray\n",
         DEATH_PYTHON, "ValueError: ray"},
        {"[rank0]:   File \"/home/u/t.py\", line 2, in f\n[rank0]:     g()\n" R0
         "ValueError: cut\n",
         DEATH_PYTHON, "ValueError: cut"},
        /* Two ranks print at the same time, and the exception of the first is the cause. */
        {R0 "Traceback (most recent call last):\n" R3 "Traceback (most recent call last):\n" R0
            "  File \"/home/u/t.py\", line 2, in f\n" R3
            "  File \"/home/u/t.py\", line 9, in f\n" R3 "OSError: three\n" R0 "ValueError: zero\n",
         DEATH_PYTHON, "ValueError: zero"},
        {HEAD BODY "ValueError: child\n" TORCHRUN("0", "1", SEE), DEATH_PYTHON,
         "ValueError: child"},
        /* torchrun reports which rank failed first. */
        {RANK_BODY(R0) R0 "torch.distributed.DistBackendError: NCCL error\n" RANK_BODY(R3) R3
         "ValueError: three\n" TORCHRUN("3", "1", SEE),
         DEATH_PYTHON, "ValueError: three"},
        {RANK_BODY(R0) R0 "ValueError: zero\n" RANK_BODY(R3) R3
         "torch.distributed.DistBackendError: NCCL error\n" TORCHRUN("0", "1", SEE),
         DEATH_PYTHON, "ValueError: zero"},
        {RANK_BODY(R3) R3 "torch.distributed.DistBackendError: NCCL error\n" TORCHRUN(
             "0", "-9", "Signal 9 (SIGKILL) received by PID 4241"),
         DEATH_PYTHON,
         "torchrun: rank 0 failed first, exitcode -9 (pid: 4241): Signal 9 (SIGKILL) received by "
         "PID 4241"},
        {TORCHRUN("0", "1", SEE), DEATH_PYTHON,
         "torchrun: rank 0 failed first, exitcode 1 (pid: 4241): its error message was "
         "not found near the end of the output"},
        /* With @record, torchrun's table contains the traceback of the rank. */
        {TORCHRUN("0", "1",
                  "Traceback (most recent call last):\n"
                  "    File \"/home/u/t.py\", line 2, in main\n      f()\n  ValueError: recorded"),
         DEATH_PYTHON, "ValueError: recorded"},
        {HEAD BODY "ValueError: child\n" HEAD BODY
                   "subprocess.CalledProcessError: Command '['/usr/bin/python', 't.py']' returned "
                   "non-zero exit status 1.\n",
         DEATH_PYTHON, "ValueError: child"},
    };
    CHECK(table);
}

static void kind_of_memory_that_ran_out_is_read_from_job_output(void **state)
{
    (void)state;
    static const struct ending table[] = {
        {HEAD BODY "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
                   "has a total capacity of 23.6 GiB\n",
         DEATH_CUDA_OOM,
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
         "total capacity of 23.6 GiB"},
        {HEAD BODY "torch.cuda.OutOfMemoryError: CUDA out of memory.\n", DEATH_CUDA_OOM,
         "torch.cuda.OutOfMemoryError: CUDA out of memory."},
        {HEAD BODY "RuntimeError: CUDA error: out of memory\n"
                   "CUDA kernel errors might be asynchronously reported at some other API call.\n",
         DEATH_CUDA_OOM, "RuntimeError: CUDA error: out of memory"},
        {HEAD BODY "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB.\n",
         DEATH_CUDA_OOM, "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.00 GiB."},
        {HEAD BODY "RuntimeError: HIP error: out of memory\n", DEATH_CUDA_OOM,
         "RuntimeError: HIP error: out of memory"},
        {HEAD BODY "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
                   "trying to allocate 8 bytes.\n",
         DEATH_CUDA_OOM,
         "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
         "allocate 8 bytes."},
        {HEAD BODY
         "RuntimeError: DataLoader worker (pid 123) is killed by signal: Bus error. It is "
         "possible that dataloader's workers are out of shared memory. Please try to "
         "raise your shared memory limit.\n",
         DEATH_SHM,
         "RuntimeError: DataLoader worker (pid 123) is killed by signal: Bus error. It is possible "
         "that dataloader's workers are out of shared memory. Please try to raise your shared "
         "memory limit."},
        {"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
         "shared memory (shm).\n" HEAD BODY
         "RuntimeError: DataLoader worker (pid(s) 5) exited unexpectedly\n",
         DEATH_SHM,
         "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
         "shared memory (shm)."},
        {HEAD BODY
         "RuntimeError: unable to write to file </torch_12_34_0>: No space left on device "
         "(28)\n",
         DEATH_SHM,
         "RuntimeError: unable to write to file </torch_12_34_0>: No space left on device (28)"},
        {HEAD BODY "OSError: [Errno 28] No space left on device: '/dev/shm/a'\n", DEATH_SHM,
         "OSError: [Errno 28] No space left on device: '/dev/shm/a'"},
        {HEAD BODY "OSError: [Errno 28] No space left on device: '/psm_1a2b'\n", DEATH_SHM,
         "OSError: [Errno 28] No space left on device: '/psm_1a2b'"},
        {HEAD BODY "OSError: [Errno 28] No space left on device: '/data/ckpt.pt'\n", DEATH_PYTHON,
         "OSError: [Errno 28] No space left on device: '/data/ckpt.pt'"},
        {HEAD BODY "MemoryError\n", DEATH_MEMORY, "MemoryError"},
        {HEAD BODY "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an "
                   "array with shape (1000000000,) and data type float64\n",
         DEATH_MEMORY,
         "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with "
         "shape (1000000000,) and data type float64"},
        {HEAD BODY "OSError: [Errno 12] Cannot allocate memory\n", DEATH_MEMORY,
         "OSError: [Errno 12] Cannot allocate memory"},
        {HEAD BODY "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: "
                   "can't allocate memory: you tried to allocate 8 bytes.\n",
         DEATH_MEMORY,
         "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't "
         "allocate memory: you tried to allocate 8 bytes."},
        {"terminate called after throwing an instance of 'std::bad_alloc'\n"
         "  what():  std::bad_alloc\n",
         DEATH_MEMORY, "std::bad_alloc"},
        {"terminate called after throwing an instance of 'c10::Error'\n"
         "  what():  CUDA error: an illegal memory access was encountered\n",
         DEATH_PYTHON, "c10::Error: CUDA error: an illegal memory access was encountered"},
        {"./train: fork: Cannot allocate memory\n", DEATH_MEMORY,
         "./train: fork: Cannot allocate memory"},
        /* The out-of-memory exception was caught, and another one ended the job. */
        {"skipping a batch: CUDA out of memory\n" HEAD BODY "KeyError: 'x'\n", DEATH_PYTHON,
         "KeyError: 'x'"},
    };
    CHECK(table);
}

static void traceback_is_found_among_colour_codes_and_progress_bars(void **state)
{
    (void)state;
    static const struct ending table[] = {
        {"\033[31m╭─\033[0m\033[31m────\033[0m\033[31m \033[0m\033[1;31mTraceback "
         "\033[0m\033[1;2;31m(most recent call last)\033[0m\033[31m ───╮\033[0m\n"
         "\033[31m│\033[0m /home/u/t.py:3 in <module>          \033[31m│\033[0m\n"
         "\033[31m│\033[0m \033[31m❱ \033[0m3 raise ValueError(1)    \033[31m│\033[0m\n"
         "\033[31m╰──────────────────────────────────────╯\033[0m\n"
         "\033[1;91mValueError: \033[0mred\n",
         DEATH_PYTHON, "ValueError: red"},
        {"+----- Traceback (most recent call last) -----+\n| /home/u/t.py:3 in <module>  |\n"
         "+----------+\nValueError: plain box\n",
         DEATH_PYTHON, "ValueError: plain box"},
        {HEAD BODY "\033[1;35mValueError\033[0m: \033[35m3.13\033[0m\n", DEATH_PYTHON,
         "ValueError: 3.13"},
        {"\033]0;title\aepoch\n\033]8;;http://x\033\\" HEAD BODY "ValueError: link\n", DEATH_PYTHON,
         "ValueError: link"},
        {"\r  0%|          | 0/30 [00:00<?, ?it/s]\r  3%|3         | 1/30 [00:01<00:32]" HEAD BODY
         "ValueError: bar\n\r  3%|3         | 1/30 [00:01<00:35, 1.2s/it]\n",
         DEATH_PYTHON, "ValueError: bar"},
        {"Traceback (most recent call last):\r\n  File \"t.py\", line 1, in <module>\r\n"
         "ValueError: crlf\r\n",
         DEATH_PYTHON, "ValueError: crlf"},
    };
    CHECK(table);
}

static void ignored_and_logged_exceptions_are_not_the_cause_of_death(void **state)
{
    (void)state;
    static const struct ending table[] = {
        {"Exception ignored in: <function A.__del__ at 0x7f0000>\n" HEAD BODY
         "TypeError: 'NoneType' object is not callable\n",
         DEATH_NO_SIGN, ""},
        {HEAD BODY
         "ValueError: real\nException ignored in: <function A.__del__ at 0x7f0000>\n" HEAD BODY
         "TypeError: late\n",
         DEATH_PYTHON, "ValueError: real"},
        {"Error in atexit._run_exitfuncs:\n" HEAD BODY "OSError: late\n", DEATH_NO_SIGN, ""},
        {"--- Logging error ---\n" HEAD BODY "TypeError: not all arguments converted\n"
         "Call stack:\n  File \"t.py\", line 3, in <module>\n    log.info('x', 1)\n"
         "Message: 'x'\nArguments: (1,)\n",
         DEATH_NO_SIGN, ""},
        {HEAD BODY "SystemExit: 3\n", DEATH_NO_SIGN, ""},
        {"Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call "
         "first):\n  File \"t.py\", line 3 in f\n  File \"t.py\", line 9 in <module>\n"
         "Modules: numpy\n",
         DEATH_NO_SIGN, ""},
        {"torch._dynamo.exc.Unsupported: x\nfrom user code:\n   File \"t.py\", line 3, in f\n"
         "    y\n\nwandb: done\n",
         DEATH_NO_SIGN, ""},
    };
    CHECK(table);
}

static void tail_add_lines(struct death_tail *t, const char *line, size_t bytes)
{
    for (size_t n = 0; n < bytes; n += strlen(line))
        death_tail_add(t, line, strlen(line));
}

static void traceback_followed_by_4_kib_of_output_is_not_the_cause(void **state)
{
    (void)state;
    char line[DEATH_LINE];
    static const char caught[] = HEAD BODY "ValueError: caught\n";
    struct death_tail t = tail_of(caught, strlen(caught));
    tail_add_lines(&t, "step 12 loss 0.3\n", 3500);
    assert_int_equal(read_end(&t, line), DEATH_PYTHON);
    tail_add_lines(&t, "step 12 loss 0.3\n", 1000);
    assert_int_equal(read_end(&t, line), DEATH_NO_SIGN);
    assert_string_equal(line, "");
    static const char words[] = "MemoryError was caught\n./x: Cannot allocate memory\n";
    death_tail_add(&t, words, strlen(words));
    assert_int_equal(read_end(&t, line), DEATH_MEMORY);
}

static void exception_followed_by_shutdown_messages_is_the_cause(void **state)
{
    (void)state;
    char line[DEATH_LINE];
    static const char start[] = HEAD BODY "RuntimeError: Error(s) in loading\n";
    struct death_tail t = tail_of(start, strlen(start));
    tail_add_lines(&t, "\tsize mismatch for layer.weight\n", 6000);
    tail_add_lines(&t, "wandb: loss ▁▂▃\n", 6000);
    assert_int_equal(read_end(&t, line), DEATH_PYTHON);
    assert_string_equal(line, "RuntimeError: Error(s) in loading");
}

static void ring_buffer_keeps_the_last_bytes_of_job_output(void **state)
{
    (void)state;
    char line[DEATH_LINE];
    static const char end[] = HEAD BODY "ValueError: at the end\n";
    for (size_t before = DEATH_TAIL - 300; before < DEATH_TAIL + 300; before += 7) {
        struct death_tail t = {.written = 0};
        tail_add_lines(&t, "x", before);
        for (const char *p = end; *p; p++)
            death_tail_add(&t, p, 1);
        assert_int_equal(t.written, before + strlen(end));
        assert_int_equal(read_end(&t, line), DEATH_PYTHON);
        assert_string_equal(line, "ValueError: at the end");
    }
    static char large[3 * DEATH_TAIL + 5];
    memset(large, '\n', sizeof(large));
    memcpy(large + sizeof(large) - strlen(end), end, strlen(end));
    struct death_tail t = tail_of("abc", 3);
    death_tail_add(&t, large, sizeof(large));
    death_tail_add(&t, NULL, 0);
    assert_int_equal(t.written, 3 + sizeof(large));
    assert_int_equal(read_end(&t, line), DEATH_PYTHON);
    assert_string_equal(line, "ValueError: at the end");
}

static void exception_line_is_escaped_and_truncated(void **state)
{
    (void)state;
    char line[DEATH_LINE];
    static const char odd[] = HEAD BODY "ValueError: a\0b\xff\x07 \xe2\x80\xae c\n";
    struct death_tail t = tail_of(odd, sizeof(odd) - 1);
    assert_int_equal(read_end(&t, line), DEATH_PYTHON);
    assert_string_equal(line, "ValueError: a\\x00b\\xff\\x07 \\u{202e} c");
    static const char start[] = HEAD BODY "ValueError: ";
    t = tail_of(start, strlen(start));
    tail_add_lines(&t, "é", 5000);
    assert_int_equal(read_end(&t, line), DEATH_PYTHON);
    assert_true(strlen(line) > DEATH_LINE - 8);
    assert_non_null(strstr(line, "éé…"));
}

/* Arbitrary bytes, broken tracebacks and escape sequences are parsed within bounds, and the result
 * is valid text. */
static void traceback_parser_handles_random_job_output(void **state)
{
    (void)state;
    static const char *const parts[] = {HEAD,
                                        "[rank",
                                        "[rank1]:",
                                        "  File \"",
                                        "\", line ",
                                        "\033[",
                                        "\033]",
                                        "\033",
                                        "terminate called after throwing "
                                        "an instance of '",
                                        "what():",
                                        "Root Cause (first observed "
                                        "failure):\n",
                                        "rank : ",
                                        "exitcode : -9",
                                        "\n",
                                        "\r",
                                        ":",
                                        "x.ChildFailedError:\n",
                                        "+ Exception Group ",
                                        "ValueError",
                                        "\xe2",
                                        "|",
                                        "  ",
                                        "99999999999",
                                        "traceback : "};
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        struct death_tail t = {.written = 0};
        for (int i = 0; i < 40; i++) {
            seed = seed * 1103515245u + 12345u;
            unsigned pick = (seed >> 16) % 40;
            char byte = (char)(seed >> 8);
            if (pick < sizeof(parts) / sizeof(*parts))
                death_tail_add(&t, parts[pick], strlen(parts[pick]));
            else
                death_tail_add(&t, &byte, 1);
        }
        char line[DEATH_LINE];
        enum death_sign sign = read_end(&t, line);
        assert_non_null(memchr(line, '\0', sizeof(line)));
        for (const char *p = line; *p; p++)
            assert_true((unsigned char)*p >= 0x20 && *p != 0x7F);
        assert_true(sign != DEATH_NO_SIGN || line[0] == '\0');
    }
}

/* --- the cause --- */

enum { EXIT_0 = 0, EXIT_1 = 1 << 8, EXIT_137 = 137 << 8 };

#define CAUSE(want_kind, want_text, ...)                                                           \
    do {                                                                                           \
        struct death_facts facts = {__VA_ARGS__};                                                  \
        char text[DEATH_TEXT];                                                                     \
        enum cause kind = death_cause(&facts, text);                                               \
        assert_string_equal(text, want_text);                                                      \
        assert_int_equal(kind, want_kind);                                                         \
    } while (0)

static const struct death_ooms none = {true, true, true, 5, 0, 2};
static const struct death_ooms in_group = {true, true, true, 6, 1, 3};
static const struct death_ooms in_group_twice = {true, true, true, 7, 2, 4};
static const struct death_ooms in_above = {true, false, true, 6, 0, 3};
static const struct death_ooms in_host = {true, false, true, 6, 0, 2};
static const struct death_ooms elsewhere = {true, true, true, 6, 0, 3};
static const struct death_ooms unknown = {false, false, false, 9, 9, 9};

static struct death_tail exception, worker, killed_worker, interrupt, shm, gpu, no_memory, torchrun,
    signalled;

static int set_up(void **state)
{
    (void)state;
#define TAIL(name, text) (name) = tail_of(HEAD BODY text, strlen(HEAD BODY text))
    TAIL(exception, "ValueError: x\n");
    TAIL(worker, "RuntimeError: DataLoader worker (pid(s) 5) exited unexpectedly\n");
    TAIL(killed_worker, "RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed. \n");
    TAIL(interrupt, "KeyboardInterrupt\n");
    TAIL(shm, "OSError: [Errno 28] No space left on device: '/dev/shm/a'\n");
    TAIL(gpu, "torch.OutOfMemoryError: CUDA out of memory.\n");
    TAIL(no_memory, "MemoryError\n");
    TAIL(signalled, "torch.distributed.elastic.multiprocessing.api.SignalException: Process 9 got "
                    "signal: 15\n");
    static const char table[] = TORCHRUN("0", "-9", "Signal 9 (SIGKILL) received by PID 4241");
    torchrun = tail_of(table, strlen(table));
    return 0;
}

static void exit_status_0_is_success_even_after_a_printed_exception(void **state)
{
    (void)state;
    CAUSE(CAUSE_DONE, "finished", .status = EXIT_0, .tail = &exception);
    CAUSE(CAUSE_DONE, "finished", .status = EXIT_0, .before = &none, .after = &in_group);
    CAUSE(CAUSE_DONE, "finished", .status = EXIT_0, .sent_signal = SIGINT);
}

static void cause_of_death_set_by_ebb_takes_precedence_over_others(void **state)
{
    (void)state;
    CAUSE(CAUSE_GUARD, "stopped by the guard: 1.2 GiB left", .status = SIGKILL,
          .cause = CAUSE_GUARD, .why = "1.2 GiB left", .before = &none, .after = &in_group);
    CAUSE(CAUSE_GUARD, "stopped by the guard", .status = EXIT_0, .cause = CAUSE_GUARD);
    CAUSE(CAUSE_CLIENT, "stopped because ebb run was killed", .status = SIGTERM,
          .cause = CAUSE_CLIENT, .sent_signal = SIGTERM, .tail = &exception);
    CAUSE(CAUSE_REQUEUED, "returned to Slurm's queue: the time limit is near", .status = SIGTERM,
          .cause = CAUSE_REQUEUED, .why = "the time limit is near");
    CAUSE(CAUSE_CANCELLED, "cancelled: wrong data", .status = EXIT_0, .cause = CAUSE_CANCELLED,
          .why = "cancelled: wrong data");
    CAUSE(CAUSE_CANCELLED, "cancelled", .status = SIGKILL, .cause = CAUSE_CANCELLED,
          .before = &none, .after = &in_group, .tail = &exception);
    assert_string_equal(cause_kind_name(CAUSE_CANCELLED), "cancelled");
}

static void user_signal_is_not_the_cause_if_the_job_ended_otherwise(void **state)
{
    (void)state;
    CAUSE(CAUSE_OPERATOR, "stopped by the operator: SIGTERM", .status = SIGTERM,
          .sent_signal = SIGTERM);
    CAUSE(CAUSE_OPERATOR, "stopped by the operator: SIGTERM", .status = (128 + SIGTERM) << 8,
          .sent_signal = SIGTERM);
    CAUSE(CAUSE_OPERATOR, "stopped by the operator: SIGINT", .status = EXIT_1,
          .sent_signal = SIGINT, .tail = &interrupt);
    CAUSE(CAUSE_OPERATOR, "stopped by the operator: SIGTERM", .status = EXIT_1,
          .sent_signal = SIGTERM, .tail = &signalled);
    CAUSE(CAUSE_OPERATOR, "stopped by the operator: SIGKILL", .status = SIGKILL,
          .sent_signal = SIGKILL, .before = &none, .after = &in_host);
    CAUSE(CAUSE_EXCEPTION, "ValueError: x", .status = EXIT_1, .sent_signal = SIGINT,
          .tail = &exception);
    CAUSE(CAUSE_SIGNAL, "crashed: SIGSEGV", .status = SIGSEGV, .sent_signal = SIGINT);
}

static void kernel_oom_kill_is_detected_by_oom_counters(void **state)
{
    (void)state;
    const uint64_t limit = UINT64_C(2) << 30;
    CAUSE(CAUSE_OOM_GROUP,
          "killed by the kernel: the job's cgroup ran out of memory (limit 2.00 GiB)",
          .status = SIGKILL, .before = &none, .after = &in_group, .limit_bytes = limit,
          .limit_where = "/a", .limit_is_own = true);
    CAUSE(CAUSE_OOM_GROUP, "killed by the kernel: cgroup /a ran out of memory (limit 2.00 GiB)",
          .status = SIGKILL, .before = &none, .after = &in_group, .limit_bytes = limit,
          .limit_where = "/a");
    CAUSE(CAUSE_OOM_HOST, "killed by the kernel: the host ran out of memory", .status = SIGKILL,
          .before = &none, .after = &(struct death_ooms){true, true, false, 6, 1, 0});
    CAUSE(CAUSE_OOM_GROUP, "killed by the kernel: cgroup /a\\nb ran out of memory (limit 2.00 GiB)",
          .status = EXIT_137, .before = &none, .after = &in_above, .limit_bytes = limit,
          .limit_where = "/a\nb");
    CAUSE(CAUSE_OOM_GROUP, "killed by the kernel: cgroup above the job's own ran out of memory",
          .status = SIGKILL, .before = &none, .after = &in_above);
    CAUSE(CAUSE_OOM_HOST, "probably killed by the kernel: the host ran out of memory",
          .status = SIGKILL, .before = &none, .after = &in_host, .limit_bytes = limit);
    CAUSE(CAUSE_OOM_HOST, "probably killed by the kernel: the host ran out of memory",
          .status = EXIT_137, .before = &none, .after = &in_host);
    /* The killed process does not belong to the job. */
    CAUSE(CAUSE_SIGNAL, "killed by SIGTERM (sender unknown)", .status = SIGTERM, .before = &none,
          .after = &in_host);
    CAUSE(CAUSE_EXCEPTION, "ValueError: x", .status = EXIT_1, .before = &none, .after = &in_host,
          .tail = &exception);
    CAUSE(CAUSE_SIGNAL, "killed by SIGKILL (sender unknown)", .status = SIGKILL, .before = &none,
          .after = &elsewhere);
    /* Counters that are unknown or have decreased are ignored. */
    CAUSE(CAUSE_SIGNAL, "killed by SIGKILL (sender unknown)", .status = SIGKILL, .before = &none,
          .after = &unknown);
    CAUSE(CAUSE_SIGNAL, "killed by SIGKILL (sender unknown)", .status = SIGKILL,
          .before = &in_group, .after = &none);
    CAUSE(CAUSE_SIGNAL, "killed by SIGKILL (sender unknown)", .status = SIGKILL,
          .after = &in_group);
}

static void oom_kill_of_a_worker_is_added_to_the_cause_of_death(void **state)
{
    (void)state;
    CAUSE(CAUSE_OOM_GROUP,
          "RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed.; the kernel killed "
          "1 process of the job: the job's cgroup ran out of memory",
          .status = EXIT_1, .before = &none, .after = &in_group, .tail = &killed_worker,
          .limit_is_own = true);
    CAUSE(CAUSE_OOM_HOST,
          "RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed.; probably killed "
          "by the kernel: the host ran out of memory",
          .status = EXIT_1, .before = &none, .after = &in_host, .tail = &killed_worker);
    CAUSE(CAUSE_OOM_GROUP,
          "torchrun: rank 0 failed first, exitcode -9 (pid: 4241): Signal 9 (SIGKILL) received by "
          "PID 4241; the kernel killed 1 process: cgroup /a ran out of memory",
          .status = EXIT_1, .before = &none, .after = &in_above, .tail = &torchrun,
          .limit_where = "/a");
    CAUSE(CAUSE_EXCEPTION,
          "ValueError: x; the kernel killed 2 processes of the job: the job's cgroup ran out of "
          "memory",
          .status = EXIT_1, .before = &none, .after = &in_group_twice, .tail = &exception,
          .limit_is_own = true);
    CAUSE(
        CAUSE_OOM_GROUP,
        "exit status 1; the kernel killed 1 process of the job: the job's cgroup ran out of memory",
        .status = EXIT_1, .before = &none, .after = &in_group, .limit_is_own = true);
    CAUSE(
        CAUSE_STATUS,
        "exit status 1; the kernel killed 1 process: cgroup above the job's own ran out of memory",
        .status = EXIT_1, .before = &none, .after = &in_above);
    CAUSE(CAUSE_EXCEPTION, "RuntimeError: DataLoader worker (pid(s) 5) exited unexpectedly",
          .status = EXIT_1, .before = &none, .after = &in_host, .tail = &worker);
}

static void kind_of_memory_that_ran_out_is_part_of_the_cause_of_death(void **state)
{
    (void)state;
    CAUSE(CAUSE_SHM_FULL, "/dev/shm was full: crashed with SIGBUS", .status = SIGBUS,
          .shm_full = true);
    CAUSE(CAUSE_SIGNAL, "crashed: SIGBUS", .status = SIGBUS);
    CAUSE(CAUSE_STATUS, "exit status 1", .status = EXIT_1, .shm_full = true);
    CAUSE(CAUSE_SHM_FULL,
          "/dev/shm was full: OSError: [Errno 28] No space left on device: '/dev/shm/a'",
          .status = EXIT_1, .tail = &shm);
    CAUSE(CAUSE_GPU_MEMORY, "torch.OutOfMemoryError: CUDA out of memory.", .status = EXIT_1,
          .tail = &gpu);
    CAUSE(CAUSE_NO_MEMORY, "an allocation failed: MemoryError", .status = EXIT_1,
          .tail = &no_memory);
    CAUSE(CAUSE_NO_MEMORY, "an allocation failed: MemoryError; then crashed: SIGABRT",
          .status = SIGABRT, .tail = &no_memory);
}

static void unknown_cause_of_death_is_described_by_the_exit_status(void **state)
{
    (void)state;
    CAUSE(CAUSE_EXCEPTION, "ValueError: x", .status = EXIT_1, .tail = &exception);
    CAUSE(CAUSE_EXCEPTION, "KeyboardInterrupt; killed by SIGINT", .status = SIGINT,
          .tail = &interrupt);
    CAUSE(CAUSE_STATUS, "exit status 3", .status = 3 << 8);
    CAUSE(CAUSE_STATUS, "exit status 255", .status = 255 << 8);
    CAUSE(CAUSE_STATUS, "exit status 137 (the status that shells report for SIGKILL)",
          .status = EXIT_137);
    CAUSE(CAUSE_SIGNAL, "killed by SIGHUP (sender unknown)", .status = SIGHUP);
    /* The wait status includes the flag for a core dump. */
    CAUSE(CAUSE_SIGNAL, "crashed: SIGABRT", .status = SIGABRT | 0x80);
    CAUSE(CAUSE_SIGNAL, "killed by signal 40 (sender unknown)", .status = 40);
}

static void every_cause_of_death_has_a_name(void **state)
{
    (void)state;
    for (enum cause i = CAUSE_UNKNOWN + 1; i < CAUSES; i++)
        assert_string_not_equal(cause_kind_name(i), "unknown");
    assert_string_equal(cause_kind_name(CAUSE_DONE), "finished");
    assert_string_equal(cause_kind_name(CAUSES), "unknown");
    assert_string_equal(cause_by_text(CAUSE_PLAN), "a planned restart");
    assert_null(cause_by_text(CAUSE_OPERATOR));
    assert_null(cause_by_text(CAUSES));
}

/* --- the counters --- */

static void put(int dirfd, const char *name, const char *text)
{
    int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void oom_counters_are_read_from_host_and_cgroups(void **state)
{
    (void)state;
    char folder[] = "/tmp/ebb-test-death-XXXXXX";
    assert_non_null(mkdtemp(folder));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct proc_root root = {.proc_fd = fd, .cgroup_fd = fd, .page_bytes = 4096};
    struct guard_cgroup g = {.dir = "job"};
    struct death_ooms o;
    death_ooms_read(&root, NULL, "", true, &o);
    assert_false(o.host_known || o.group_known || o.above_known);

    put(fd, "vmstat", "nr_free_pages 12\noom_kill 17\nnuma_hit 3\n");
    assert_int_equal(mkdirat(fd, "a", 0700), 0);
    put(fd, "a/memory.events", "low 0\nhigh 0\nmax 4\noom 3\noom_kill 2\noom_group_kill 0\n");
    put(fd, "a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n");
    group_count = 4;
    death_ooms_read(&root, &g, "a", true, &o);
    assert_true(o.host_known && o.group_known && o.above_known);
    assert_int_equal(o.host, 17);
    assert_int_equal(o.group, 4);
    assert_int_equal(o.above, 2);
    group_result = -ENODATA;
    death_ooms_read(&root, &g, "a", false, &o);
    assert_false(o.group_known);
    assert_int_equal(o.above, 9);
    group_result = 0;
    death_ooms_read(&root, NULL, "gone", false, &o);
    assert_true(o.host_known);
    assert_false(o.above_known);
    root.cgroup_fd = -1;
    death_ooms_read(&root, NULL, "a", true, &o);
    assert_false(o.above_known);

    unlinkat(fd, "a/memory.events", 0);
    unlinkat(fd, "a/memory.oom_control", 0);
    unlinkat(fd, "a", AT_REMOVEDIR);
    unlinkat(fd, "vmstat", 0);
    close(fd);
    rmdir(folder);
}

static void oom_counter_of_this_machine_is_read(void **state)
{
    (void)state;
    struct proc_root root;
    struct death_ooms o;
    assert_int_equal(proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL), 0);
    /* gVisor and some kernels do not have this counter. */
    FILE *f = fopen("/proc/vmstat", "re");
    char line[256];
    bool is_there = false;
    while (f && fgets(line, sizeof(line), f))
        is_there = is_there || strncmp(line, "oom_kill ", 9) == 0;
    if (f)
        fclose(f);
    death_ooms_read(&root, NULL, "", true, &o);
    assert_int_equal(o.host_known, is_there);
    proc_root_close(&root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cause_of_death_is_the_last_exception_of_the_traceback),
        cmocka_unit_test(cause_of_death_is_the_original_exception_of_the_worker),
        cmocka_unit_test(cause_of_death_is_the_exception_of_the_first_failed_rank),
        cmocka_unit_test(kind_of_memory_that_ran_out_is_read_from_job_output),
        cmocka_unit_test(traceback_is_found_among_colour_codes_and_progress_bars),
        cmocka_unit_test(ignored_and_logged_exceptions_are_not_the_cause_of_death),
        cmocka_unit_test(traceback_followed_by_4_kib_of_output_is_not_the_cause),
        cmocka_unit_test(exception_followed_by_shutdown_messages_is_the_cause),
        cmocka_unit_test(ring_buffer_keeps_the_last_bytes_of_job_output),
        cmocka_unit_test(exception_line_is_escaped_and_truncated),
        cmocka_unit_test(traceback_parser_handles_random_job_output),
        cmocka_unit_test(exit_status_0_is_success_even_after_a_printed_exception),
        cmocka_unit_test(cause_of_death_set_by_ebb_takes_precedence_over_others),
        cmocka_unit_test(user_signal_is_not_the_cause_if_the_job_ended_otherwise),
        cmocka_unit_test(kernel_oom_kill_is_detected_by_oom_counters),
        cmocka_unit_test(oom_kill_of_a_worker_is_added_to_the_cause_of_death),
        cmocka_unit_test(kind_of_memory_that_ran_out_is_part_of_the_cause_of_death),
        cmocka_unit_test(unknown_cause_of_death_is_described_by_the_exit_status),
        cmocka_unit_test(every_cause_of_death_has_a_name),
        cmocka_unit_test(oom_counters_are_read_from_host_and_cgroups),
        cmocka_unit_test(oom_counter_of_this_machine_is_read),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
