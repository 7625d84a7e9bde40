/* Tests parsing the output of Slurm's commands, including damaged output. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "server/jobs/slurm_private.h"

#define ID "0123456789abcdef0123456789abcdef"

static int parse_text(const char *text, struct slurm_line *ret)
{
    return slurm_parse_line(text, strlen(text), ret);
}

static void squeue_line_is_parsed_into_number_and_phase_and_reason(void **state)
{
    struct slurm_line l;
    (void)state;
    assert_int_equal(parse_text("17|PENDING|Resources|sft." ID, &l), 0);
    assert_int_equal(l.number, 17);
    assert_int_equal(l.phase, SLURM_PENDING);
    assert_string_equal(l.detail, "Resources");
    assert_string_equal(l.folder_id, ID);
    assert_int_equal(parse_text("18|COMPLETING|None|a.b|c." ID, &l), 0);
    assert_int_equal(l.phase, SLURM_RUNNING);
    assert_string_equal(l.detail, "");
}

static void uid_at_the_end_of_a_cancelled_slurm_state_is_ignored(void **state)
{
    struct slurm_line l;
    (void)state;
    assert_int_equal(parse_text("17|CANCELLED by 1000|0:15|x." ID, &l), 0);
    assert_int_equal(l.phase, SLURM_ENDED);
    assert_string_equal(l.state, "CANCELLED");
}

static void foreign_and_damaged_squeue_lines_are_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "|||",
        "17",
        "17|RUNNING|None|train",
        "17|RUNNING|None|." ID, /* The name of this job is empty. */
        "x|RUNNING|None|a." ID,
        "-1|RUNNING|None|a." ID,
        "17|RUNNING|a." ID,
        "17|RUNNING|None|a.0123456789ABCDEF0123456789abcdef",
        "17|RUNNING|None|a-" ID,
    };
    struct slurm_line l;
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(parse_text(lines[i], &l), -EBADMSG);
}

static void control_characters_in_slurm_text_are_replaced(void **state)
{
    struct slurm_line l;
    (void)state;
    assert_int_equal(parse_text("17|PENDING|\x1b[31mred|a." ID, &l), 0);
    assert_string_equal(l.detail, "?[31mred");
}

static void sbatch_job_number_without_line_end_is_refused(void **state)
{
    int64_t n = 0;
    (void)state;
    assert_int_equal(slurm_parse_number("123\n", 4, &n), 0);
    assert_int_equal(n, 123);
    assert_int_equal(slurm_parse_number("9;cluster\n", 10, &n), 0);
    assert_int_equal(n, 9);
    /* Without a line end, the number may be incomplete. */
    assert_int_equal(slurm_parse_number("12", 2, &n), -EBADMSG);
    assert_int_equal(slurm_parse_number("x\n", 2, &n), -EBADMSG);
    assert_int_equal(slurm_parse_number("0\n", 2, &n), -EBADMSG);
    assert_int_equal(n, 9);
}

static void sbatch_error_is_temporary_if_a_retry_can_succeed(void **state)
{
    (void)state;
    assert_true(slurm_is_temporary("Unable to contact slurm controller (connect failure)"));
    assert_true(slurm_is_temporary("Socket timed out on send/recv operation"));
    assert_true(slurm_is_temporary("Job violates accounting/QOS policy (job submit limit, ...)"));
    assert_false(slurm_is_temporary("Invalid partition name specified"));
    assert_false(slurm_is_temporary("Requested node configuration is not available"));
    assert_false(slurm_is_temporary(""));
}

static void sbatch_options_set_by_ebb_cannot_be_requested(void **state)
{
    (void)state;
    assert_true(slurm_is_option("partition"));
    assert_true(slurm_is_option("ntasks-per-node"));
    assert_false(slurm_is_option("output"));
    assert_false(slurm_is_option("wrap"));
    assert_false(slurm_is_option("--partition"));
    assert_false(slurm_is_option("a=b"));
    assert_false(slurm_is_option(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squeue_line_is_parsed_into_number_and_phase_and_reason),
        cmocka_unit_test(uid_at_the_end_of_a_cancelled_slurm_state_is_ignored),
        cmocka_unit_test(foreign_and_damaged_squeue_lines_are_refused),
        cmocka_unit_test(control_characters_in_slurm_text_are_replaced),
        cmocka_unit_test(sbatch_job_number_without_line_end_is_refused),
        cmocka_unit_test(sbatch_error_is_temporary_if_a_retry_can_succeed),
        cmocka_unit_test(sbatch_options_set_by_ebb_cannot_be_requested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
