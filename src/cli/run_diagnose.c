/* The diagnosis of a run that has ended, for its summary. */
#include "cli/run_diagnose.h"

#include <string.h>

#include "diagnose/diagnosis.h"
#include "judge/recorded.h"

/* Where the baseline is flat there is nothing to explain, and nothing is read. */
static bool may_have_grown(const json_t *verdict)
{
    const json_t *tree = json_object_get(verdict, "tree");
    const char *word = json_string_value(json_object_get(tree, "verdict"));
    return word && strcmp(word, "stable") != 0 && strcmp(word, "spiking") != 0;
}

struct facts *run_facts(const json_t *doc)
{
    const char *folder = json_string_value(json_object_get(doc, "run_dir"));
    struct recorded recorded;
    struct facts *facts = NULL;
    if (!folder || !may_have_grown(json_object_get(doc, "verdict")))
        return NULL;
    if (recorded_read(folder, NULL, NULL, &recorded, NULL) < 0 ||
        facts_new(&recorded, &facts, NULL) < 0)
        facts = NULL;
    recorded_fini(&recorded);
    return facts;
}

void run_diagnose(json_t *doc, const struct facts *facts)
{
    struct diagnosis all;
    if (!facts || diagnosis_make(facts, &all, NULL) < 0)
        return;
    if (all.has_grown)
        json_object_set_new(doc, "diagnosis", diagnosis_brief_json(&all));
    diagnosis_fini(&all);
}
