/* Tests how roles are guessed from real and hostile command lines. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "proc/command.h"
#include "proc/procfs.h"
#include "proc/role.h"

/* ARGS contains arguments separated by "|". */
static struct process_info process(const char *comm, const char *args)
{
    struct process_info p = {.id = {100, 1}, .ppid = 50};
    p.comm_len = (uint16_t)strlen(comm);
    memcpy(p.comm, comm, p.comm_len);
    p.cmdline_len = (uint16_t)strlen(args);
    for (size_t i = 0; i < p.cmdline_len; i++)
        p.cmdline[i] = args[i] == '|' ? '\0' : args[i];
    return p;
}

static enum process_role guess(struct role_input in, const struct process_info *p)
{
    struct role_guess g;
    memset(&g, 0x5a, sizeof(g));
    in.process = p;
    role_guess(&in, &g);
    assert_non_null(memchr(g.why, '\0', sizeof(g.why)));
    assert_null(strchr(g.why, '\n'));
    return g.role;
}

static bool launches(const char *args)
{
    struct process_info p = process("x", args);
    return role_launcher_name(p.cmdline, p.cmdline_len) != NULL;
}

static void commands_that_run_another_program_have_the_role_launcher(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "uv|run|model-garden|serve",
        "/home/leo/.local/bin/uv|run|--with|torch|python|train.py",
        "uv|--quiet|--directory|/srv/x|run|train.py",
        "uvx|axolotl|train",
        "pipx|run|x",
        "/usr/bin/python3|/usr/bin/poetry|run|python|train.py",
        "pdm|run|train",
        "/opt/conda/bin/python|/opt/conda/bin/conda|run|-n|env|python|train.py",
        "/x/bin/python3.11|/x/bin/accelerate|launch|--num_processes|2|train.py",
        "/x/bin/python|-m|accelerate.commands.launch|train.py",
        "/x/bin/python|-um|torch.distributed.run|--nproc_per_node=4|train.py",
        "python3|-mtorch.distributed.launch|train.py",
        "python|-W|ignore|-X|dev|-m|torch.distributed.run|train.py",
        "/x/bin/python3.11|/x/bin/torchrun|--standalone|train.py",
        "python3|/x/lib/python3.11/site-packages/torch/distributed/run.py|train.py",
        "torchrun|train.py",
        "deepspeed|train.py",
        "python|-m|deepspeed.launcher.launch|train.py",
        "mpirun|-n|4|python|train.py",
        "srun|python|train.py",
        "bash",
        "-bash",
        "-zsh",
        "/bin/sh|-c|python train.py",
        "bash|./run.sh",
        "fish|-c|x",
        "env|A=1|python|train.py",
        "nice|-n|5|python",
        "nohup|python|train.py",
        "timeout|1h|python|train.py",
        "sudo|-u|me|python|train.py",
        "numactl|--cpunodebind=0|python",
        "xargs|-P4|python",
        "make|-j8",
        "tmux|new|-s|t",
        "sshd: leo@pts/0",
        "ebb|run|--|python|train.py",
    };
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
        if (!launches(yes[i]))
            fail_msg("not taken for a launcher: %s", yes[i]);
}

static void launcher_name_as_an_argument_does_not_make_a_launcher(void **state)
{
    (void)state;
    static const char *const no[] = {
        "",
        "|",
        "python|train.py|--name|torchrun",
        "python|train.py|torchrun",
        "python|train.py|-m|torch.distributed.run",
        "python|-c|import torch.distributed.run|-m|torch.distributed.run",
        "python|-|torchrun",
        "python",
        "python|deepspeed.py",
        "python|/home/me/bash",
        "python|-W|torchrun",
        "uv|pip|install|run",
        "uv|sync",
        "uv",
        "accelerate|config",
        "accelerate|env|launch",
        "conda|activate|run",
        "python|-m|accelerate.commands.accelerate_cli|test|launch",
        "python|-m|make",
        "pythonize|/x/bin/torchrun",
        "./bashful",
        "shell",
        "torchrun2",
        "torch run",
        "cc1|-o|bash",
        "ebb|watch|run",
    };
    for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
        if (launches(no[i]))
            fail_msg("taken for a launcher: %s", no[i]);
}

static void torchrun_is_a_launcher_even_if_torch_is_loaded(void **state)
{
    (void)state;
    struct process_info p = process("pt_elastic", "/x/bin/python3|/x/bin/torchrun|train.py");
    struct role_input in = {.maps = {.known = true, .torch = true, .python = true}};
    assert_int_equal(guess(in, &p), ROLE_LAUNCHER);
    assert_true(role_starts_ranks(&p));
    struct process_info renamed = process("pt_elastic", "something else");
    assert_int_equal(guess(in, &renamed), ROLE_LAUNCHER);
    struct process_info shell = process("bash", "bash");
    assert_false(role_starts_ranks(&shell));
}

static void each_rank_under_torchrun_has_the_role_main(void **state)
{
    (void)state;
    struct process_info parent = process("pt_elastic", "/x/bin/python3|/x/bin/torchrun|train.py");
    parent.role = ROLE_LAUNCHER;
    struct process_info p = process("pt_main_thread", "/x/bin/python3|-u|train.py");
    struct role_input in = {
        .parent = &parent, .siblings = 3, .maps = {.known = true, .torch = true}};
    assert_int_equal(guess(in, &p), ROLE_MAIN);
    /* The mappings are unreadable, but the process name that torch sets is sufficient evidence. */
    in.maps = (struct role_maps){0};
    assert_int_equal(guess(in, &p), ROLE_MAIN);
    /* No training library is mapped and the process has siblings, so it is unknown whether the
     * process trains. */
    in.maps.known = true;
    assert_int_equal(guess(in, &p), ROLE_OTHER);
}

static void compile_worker_is_recognized_by_script_title_or_parent(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "/v/bin/python|/v/lib/python3.12/site-packages/torch/_inductor/compile_worker/__main__.py|"
        "--pickler=torch._inductor.compile_worker.subproc_pool.SubprocPickler|--kind=fork|"
        "--workers=20|--parent=141495",
        "python|-m|torch._inductor.compile_worker",
        "torch compile_worker",
    };
    struct role_input in = {.maps = {.known = true, .torch = true, .python = true}};
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++) {
        struct process_info p = process("python", yes[i]);
        if (guess(in, &p) != ROLE_COMPILE_WORKER)
            fail_msg("no compile worker: %s", yes[i]);
    }
    struct process_info coordinator = process("python", yes[0]);
    coordinator.role = ROLE_COMPILE_WORKER;
    in.parent = &coordinator;
    struct process_info spawned =
        process("python", "python|-c|from multiprocessing.spawn import spawn_main; spawn_main(3)");
    assert_int_equal(guess(in, &spawned), ROLE_COMPILE_WORKER);
    struct process_info tool = process("ptxas", "ptxas|--gpu-name|sm_90");
    in.maps = (struct role_maps){.known = true};
    assert_int_equal(guess(in, &tool), ROLE_OTHER);
}

static void argument_that_mentions_compile_worker_does_not_affect_role(void **state)
{
    (void)state;
    struct process_info p =
        process("python", "python|train.py|--name|torch/_inductor/compile_worker|compile_worker");
    struct role_input in = {.maps = {.known = true, .torch = true, .python = true}};
    assert_int_equal(guess(in, &p), ROLE_MAIN);
}

static void data_worker_is_recognized_by_name_or_command_line(void **state)
{
    (void)state;
    struct process_info parent = process("pt_main_thread", "python|train.py");
    parent.role = ROLE_MAIN;
    struct role_input in = {
        .parent = &parent, .siblings = 7, .maps = {.known = true, .torch = true, .cuda = true}};
    struct process_info named = process("pt_data_worker", "python|train.py");
    struct process_info forked = process("python", "python|train.py");
    struct process_info spawned =
        process("python", "python|-c|from multiprocessing.spawn import spawn_main; "
                          "spawn_main(tracker_fd=7, pipe_handle=9)|--multiprocessing-fork");
    assert_int_equal(guess(in, &named), ROLE_DATA_WORKER);
    assert_int_equal(guess(in, &forked), ROLE_DATA_WORKER);
    /* CUDA is initialized, so the process is a rank of torch.multiprocessing.spawn. */
    assert_int_equal(guess(in, &spawned), ROLE_MAIN);
    in.maps.cuda = false;
    assert_int_equal(guess(in, &spawned), ROLE_DATA_WORKER);
    parent.role = ROLE_DATA_WORKER;
    assert_int_equal(guess(in, &forked), ROLE_DATA_WORKER);
}

static void multiprocessing_child_that_sends_steps_has_the_role_main(void **state)
{
    (void)state;
    struct process_info parent = process("pt_main_thread", "python|train.py");
    parent.role = ROLE_MAIN;
    struct role_input in = {.parent = &parent, .maps = {.known = true, .torch = true}};
    struct process_info forked = process("python", "python|train.py");
    struct process_info spawned =
        process("python", "python|-c|from multiprocessing.spawn import spawn_main; "
                          "spawn_main(tracker_fd=7, pipe_handle=9)|--multiprocessing-fork");
    assert_int_equal(guess(in, &spawned), ROLE_DATA_WORKER);
    in.sends_steps = true;
    assert_int_equal(guess(in, &spawned), ROLE_MAIN);
    assert_int_equal(guess(in, &forked), ROLE_MAIN);
}

static void fork_of_a_python_program_without_torch_is_not_a_data_worker(void **state)
{
    (void)state;
    struct process_info parent = process("python", "python|pool.py");
    parent.role = ROLE_MAIN;
    struct process_info p = process("python", "python|pool.py");
    struct role_input in = {.parent = &parent, .siblings = 3, .maps = {.known = true}};
    assert_int_equal(guess(in, &p), ROLE_OTHER);
}

static void only_training_processes_have_role_main_on_a_whole_machine(void **state)
{
    (void)state;
    struct process_info p = process("cron", "/usr/sbin/cron|-f");
    struct role_input in = {.whole_machine = true, .maps = {.known = true}};
    assert_int_equal(guess(in, &p), ROLE_OTHER);
    struct process_info trainer = process("python", "python|train.py");
    in.maps.torch = true;
    assert_int_equal(guess(in, &trainer), ROLE_MAIN);
}

static void fork_of_a_non_python_program_is_not_a_data_worker(void **state)
{
    (void)state;
    struct process_info parent = process("nginx", "nginx|-g|x");
    parent.role = ROLE_MAIN;
    struct process_info p = process("nginx", "nginx|-g|x");
    struct role_input in = {.parent = &parent, .maps = {.known = true}};
    assert_int_equal(guess(in, &p), ROLE_OTHER);
}

static void multiprocessing_helper_processes_are_not_data_workers(void **state)
{
    (void)state;
    struct process_info tracker =
        process("python", "python|-c|from multiprocessing.resource_tracker import main;main(5)");
    struct process_info server = process(
        "python", "python|-c|from multiprocessing.forkserver import main; main(6, 7, ['x'])");
    struct process_info parent = process("python", "python|train.py");
    parent.role = ROLE_MAIN;
    struct role_input in = {.parent = &parent, .maps = {.known = true, .python = true}};
    assert_int_equal(guess(in, &tracker), ROLE_RESOURCE_TRACKER);
    assert_int_equal(guess(in, &server), ROLE_RESOURCE_TRACKER);
    struct process_info worker = server;
    server.role = ROLE_RESOURCE_TRACKER;
    in.parent = &server;
    assert_int_equal(guess(in, &worker), ROLE_DATA_WORKER);
}

static void parent_of_a_trainer_has_role_launcher_unless_parent_trains(void **state)
{
    (void)state;
    struct process_info p = process("python", "python|run_all.py");
    struct role_input in = {.maps = {.known = true, .python = true}, .child_trains = true};
    assert_int_equal(guess(in, &p), ROLE_LAUNCHER);
    in.maps.jax = true;
    assert_int_equal(guess(in, &p), ROLE_MAIN);
}

static void first_program_of_the_job_has_the_role_main(void **state)
{
    (void)state;
    struct process_info program = process("solver", "./solver|--n|7");
    struct role_input in = {.maps = {.known = true}};
    assert_int_equal(guess(in, &program), ROLE_MAIN);
    struct process_info shell = process("bash", "bash|run.sh");
    shell.role = ROLE_LAUNCHER;
    in.parent = &shell;
    assert_int_equal(guess(in, &program), ROLE_MAIN);
    /* The process has a sibling, so it is unknown which of the two is the main process. */
    in.siblings = 1;
    assert_int_equal(guess(in, &program), ROLE_OTHER);
    shell.role = ROLE_MAIN;
    in.siblings = 0;
    assert_int_equal(guess(in, &program), ROLE_OTHER);
}

static void process_without_a_command_line_has_the_role_other(void **state)
{
    (void)state;
    struct process_info p = process("kworker/0:1", "");
    struct role_input in = {0};
    assert_int_equal(guess(in, &p), ROLE_OTHER);
}

static void tensorboard_has_the_role_other_even_if_tensorflow_is_loaded(void **state)
{
    (void)state;
    struct process_info p = process("tensorboard", "/x/bin/python3|/x/bin/tensorboard|--logdir|x");
    struct role_input in = {.maps = {.known = true, .tensorflow = true}};
    assert_int_equal(guess(in, &p), ROLE_OTHER);
}

static void role_detection_handles_random_command_lines(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        struct process_info p = process("x", "");
        struct role_input in = {.parent = &p};
        static const char *const start[] = {"python|", "uv|", "", "-|", "python|-c|from "};
        size_t n = strlen(start[round % 5]);
        memcpy(p.cmdline, start[round % 5], n);
        p.cmdline_len = (uint16_t)(n + (seed >> 8) % 40);
        for (size_t i = 0; i < p.cmdline_len; i++) {
            seed = seed * 1664525 + 1013904223;
            if (i >= n)
                p.cmdline[i] = "\0-mcWX/:= r"[(seed >> 16) % 11];
            else if (p.cmdline[i] == '|')
                p.cmdline[i] = '\0';
        }
        p.comm_len = (uint16_t)(seed >> 20 & 63);
        (void)guess(in, &p);
    }
}

static struct role_maps maps_of(const char *path)
{
    struct role_maps maps = {0};
    struct proc_map map = {.path = path, .path_len = strlen(path)};
    role_maps_add(&maps, &map);
    assert_true(maps.known);
    return maps;
}

static void training_libraries_are_recognized_by_file_name(void **state)
{
    (void)state;
    assert_true(maps_of("/v/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so").torch);
    assert_true(maps_of("/v/torch/lib/libc10.so (deleted)").torch);
    assert_true(maps_of("/v/jaxlib/libjax_common.so").jax);
    assert_true(maps_of("/v/jaxlib/xla_extension.so").jax);
    assert_true(maps_of("/v/tensorflow/libtensorflow_framework.so.2").tensorflow);
    assert_true(maps_of("/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05").cuda);
    assert_true(maps_of("/usr/lib/libpython3.11.so.1.0").python);
    assert_true(maps_of("/usr/bin/python3.11").python);
    assert_false(maps_of("/usr/lib/libcudart.so.12").cuda);
    assert_false(maps_of("/data/libtorch.txt").torch);
    assert_false(maps_of("/data/libtorch_cpu.so/train.arrow").torch);
    assert_false(maps_of("/usr/bin/python-config").python);
    assert_false(maps_of("[heap]").python);
    assert_false(maps_of("").python);
    assert_false(maps_of("/").python);
}

static void name_of_a_ray_worker_is_the_actor_or_task_name(void **state)
{
    static const char *const titles[][2] = {
        {"ray::Trainer.step", "ray::Trainer"},
        {"ray::load_data", "ray::load_data"},
        {"ray::MapBatches(a.b)", "ray::MapBatches(a.b)"},
        /* The name is escaped when it is displayed. */
        {"ray::Naïve\x1b[31m.x", "ray::Naïve\x1b[31m"},
    };
    struct span name;
    (void)state;
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        assert_true(command_ray_title(titles[i][0], strlen(titles[i][0]), &name));
        assert_int_equal(name.len, strlen(titles[i][1]));
        assert_memory_equal(name.p, titles[i][1], name.len);
    }
    assert_false(command_ray_title("ray::", 5, &name));
    assert_false(command_ray_title("ray", 3, &name));
    assert_false(command_ray_title("x ray::A", 8, &name));
}

static void ray_worker_has_the_role_main_only_if_it_trains(void **state)
{
    (void)state;
    struct process_info actor = process("ray::Trainer", "ray::Trainer");
    struct process_info agent = process("ray::DashboardA", "ray::DashboardAgent");
    assert_int_equal(guess((struct role_input){0}, &actor), ROLE_RAY_WORKER);
    assert_int_equal(guess((struct role_input){.maps = {.known = true, .torch = true}}, &actor),
                     ROLE_MAIN);
    assert_int_equal(guess((struct role_input){.sends_steps = true}, &actor), ROLE_MAIN);
    assert_int_equal(guess((struct role_input){0}, &agent), ROLE_OTHER);
    assert_true(launches("/x/bin/python3|/x/bin/ray|start|--head|--block"));
    assert_false(launches("/x/bin/python3|/x/bin/ray|status"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_of_a_ray_worker_is_the_actor_or_task_name),
        cmocka_unit_test(ray_worker_has_the_role_main_only_if_it_trains),
        cmocka_unit_test(commands_that_run_another_program_have_the_role_launcher),
        cmocka_unit_test(launcher_name_as_an_argument_does_not_make_a_launcher),
        cmocka_unit_test(torchrun_is_a_launcher_even_if_torch_is_loaded),
        cmocka_unit_test(each_rank_under_torchrun_has_the_role_main),
        cmocka_unit_test(compile_worker_is_recognized_by_script_title_or_parent),
        cmocka_unit_test(argument_that_mentions_compile_worker_does_not_affect_role),
        cmocka_unit_test(data_worker_is_recognized_by_name_or_command_line),
        cmocka_unit_test(multiprocessing_child_that_sends_steps_has_the_role_main),
        cmocka_unit_test(fork_of_a_python_program_without_torch_is_not_a_data_worker),
        cmocka_unit_test(only_training_processes_have_role_main_on_a_whole_machine),
        cmocka_unit_test(fork_of_a_non_python_program_is_not_a_data_worker),
        cmocka_unit_test(multiprocessing_helper_processes_are_not_data_workers),
        cmocka_unit_test(parent_of_a_trainer_has_role_launcher_unless_parent_trains),
        cmocka_unit_test(first_program_of_the_job_has_the_role_main),
        cmocka_unit_test(process_without_a_command_line_has_the_role_other),
        cmocka_unit_test(tensorboard_has_the_role_other_even_if_tensorflow_is_loaded),
        cmocka_unit_test(role_detection_handles_random_command_lines),
        cmocka_unit_test(training_libraries_are_recognized_by_file_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
