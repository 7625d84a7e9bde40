/* A decoder like those in C extensions. The decoder owns the memory that it returns, and no garbage
 * collector knows of this memory. */
#include <stdlib.h>

struct clip {
    struct clip *next;
    size_t samples;
    float data[];
};

static struct clip *clips;

/* Returns a wave of SAMPLES samples with initial phase PHASE; freed with clip_free. */
__attribute__((visibility("default"))) struct clip *clip_decode(size_t samples, float phase)
{
    struct clip *clip = malloc(sizeof *clip + samples * sizeof *clip->data);

    if (!clip)
        return NULL;
    clip->samples = samples;
    for (size_t i = 0; i < samples; i++)
        clip->data[i] = phase + (float)(i % 100) / 100.0f;
    clip->next = clips;
    clips = clip;
    return clip;
}

__attribute__((visibility("default"))) float *clip_data(struct clip *clip)
{
    return clip->data;
}

__attribute__((visibility("default"))) void clip_free(struct clip *clip)
{
    struct clip **at = &clips;

    while (*at && *at != clip)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = clip->next;
    free(clip);
}

/* Returns the live bytes of all clips. */
__attribute__((visibility("default"))) size_t clip_live_bytes(void)
{
    size_t bytes = 0;

    for (const struct clip *clip = clips; clip; clip = clip->next)
        bytes += sizeof *clip + clip->samples * sizeof *clip->data;
    return bytes;
}
