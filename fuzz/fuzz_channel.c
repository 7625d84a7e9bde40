/* Fuzzes the frames exchanged by a supervisor and its clients, delivered in pieces as a socket
 * delivers them, and the server's parser of messages from a supervisor. Both sides must survive
 * arbitrary bytes, because a job can connect to either. */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervise/channel.h"
#include "run/spark.h"
#include "server/jobs/jobs_private.h"
#include "target.h"

static void take_news(const json_t *message)
{
    struct series spark = {0};
    struct job_message m;
    struct job_facts facts = {0};
    json_t *doc = json_object();
    if (job_message_read(message, &m) == 0) {
        if (m.type == MESSAGE_STATE) {
            facts.has_progress = facts.has_verdict = true;
            facts.progress = m.state.progress;
            facts.verdict = m.state.verdict;
        } else if (m.type == MESSAGE_SAMPLE) {
            facts.has_memory = true;
            facts.memory.has_job_bytes = m.sample.has_job_bytes;
            facts.memory.job_bytes = m.sample.job_bytes;
        }
        json_decref(job_message_json(&m));
        codec_put(job_facts_codec, &facts, doc);
        job_message_fini(&m);
    }
    json_decref(doc);
    if (spark_unpack(message, &spark)) {
        (void)series_add(&spark, UINT64_C(60000000000), 1 << 20);
        json_decref(spark_json(&spark));
        json_decref(spark_pack(&spark));
    }
    series_fini(&spark);
}

static int take_frames(struct channel *c)
{
    enum channel_type type;
    const char *data;
    size_t len;
    int r;
    while ((r = channel_next(c, &type, &data, &len)) == 1) {
        if (len > CHANNEL_FRAME_MAX)
            abort();
        json_t *message = json_parse(data, len, NULL);
        if (type == CHANNEL_MESSAGE)
            take_news(message);
        json_decref(message);
    }
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { PIECES = 4 };
    static int fd[2] = {-1, -1};
    struct channel c;
    if (fd[0] < 0 && channel_pair(fd) < 0)
        abort();
    channel_init(&c, fd[0]);
    size_t piece = size / (size && data[size - 1] % PIECES ? data[size - 1] % PIECES : 1) + 1;
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (send(fd[1], data + at, n, MSG_DONTWAIT) != (ssize_t)n)
            abort(); /* Each input fits into the socket's buffer. */
        while (channel_fill(&c) == 1)
            ;
        if (take_frames(&c) < 0)
            break;
    }
    c.fd = -1; /* The socket stays open for the next input. */
    channel_fini(&c);
    char rest[4096];
    while (recv(fd[0], rest, sizeof rest, MSG_DONTWAIT) > 0)
        ;
    return 0;
}
