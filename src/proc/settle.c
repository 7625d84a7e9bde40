/* Assigns roles to the processes of a tree: collects the inputs of role.c, and guesses the roles
 * again when the inputs change. */
#include "proc/node.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* The maps file of a process is read several times, because importing torch takes seconds and
 * libraries are mapped late. Each pause is twice as long as the previous one, and the file is read
 * only if the address space has changed. */
enum { MAPS_FIRST_MS = 250, MAPS_LAST_S = 600 };
/* Maximum number of bytes of maps that are read, which limits the work for a process with a million
 * mappings. The maps file of a training process is smaller. */
enum { MAPS_BYTES_MAX = 4 << 20 };

static void read_role_maps(void *arg)
{
    struct slow_read *slow = arg;
    slow->maps = (struct role_maps){.known = true};
    proc_read_maps(slow->fd, MAPS_BYTES_MAX, role_maps_add, &slow->maps);
    close(slow->fd);
}

static void refresh_maps(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    n->maps_due_ns = now_ns + n->maps_gap_ns;
    n->maps_gap_ns *= 2;
    if (n->maps_gap_ns > MAPS_LAST_S * NS_PER_S)
        n->maps_gap_ns = MAPS_LAST_S * NS_PER_S;
    if (n->maps.known && n->maps_size_bytes == n->size_bytes)
        return;
    n->maps_size_bytes = n->size_bytes;
    if (tree_read_slowly(tree, n, "maps", read_role_maps) < 0)
        return;
    n->maps = tree->slow.maps;
    tree_read_names(tree, n); /* the process may have changed its title by now */
    n->role_dirty = true;
    /* A training library was found. Until the next exec, reading maps again would reveal nothing
     * new. */
    if (role_maps_library(&n->maps))
        n->maps_due_ns = UINT64_MAX;
}

static struct tree_node *node_parent(const struct proc_tree *tree, const struct tree_node *n)
{
    return tree_find(tree, n->pub.info.ppid);
}

void tree_guess_role(const struct proc_tree *tree, const struct tree_node *n,
                     struct role_guess *ret)
{
    const struct tree_node *parent = node_parent(tree, n);
    const struct role_input in = {
        .process = &n->pub.info,
        .parent = parent ? &parent->pub.info : NULL,
        .maps = n->maps,
        .siblings = n->siblings,
        .whole_machine = tree->all,
        .child_trains = n->child_trains,
        .sends_steps = n->sends_steps,
    };
    role_guess(&in, ret);
}

/* Guesses the role of N again. Returns true if the role has changed. */
static bool guess_role(struct proc_tree *tree, struct tree_node *n)
{
    struct role_guess out;
    tree_guess_role(tree, n, &out);
    n->role_dirty = false;
    bool changed = out.role != n->pub.info.role;
    n->pub.info.role = out.role;
    return changed;
}

void settle_newborn(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    const struct tree_node *parent = node_parent(tree, n);
    n->maps_gap_ns = MAPS_FIRST_MS * NS_PER_MS;
    n->maps_due_ns = now_ns + n->maps_gap_ns;
    if (parent && parent->start_stack != 0 && parent->start_stack == n->start_stack) {
        /* a fork that has not called exec has the same libraries as its parent */
        n->maps = parent->maps;
        n->maps_size_bytes = parent->maps_size_bytes;
    }
    guess_role(tree, n);
    n->role_dirty = true;
    tree->kin_dirty = true;
}

void settle_execed(struct tree_node *n, uint64_t now_ns)
{
    n->maps = (struct role_maps){0};
    n->sends_steps = false;
    n->maps_gap_ns = MAPS_FIRST_MS * NS_PER_MS;
    n->maps_due_ns = now_ns + n->maps_gap_ns;
    n->role_dirty = true;
}

/* Counts the children and siblings of each node. Marks nodes whose counts have changed, so that
 * their roles are guessed again. */
static void count_kin(struct proc_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        n->children_before = n->children;
        n->children = 0;
    }
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *parent = node_parent(tree, tree->nodes[i]);
        if (parent && tree->nodes[i]->pub.alive)
            parent->children++;
    }
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        const struct tree_node *parent = node_parent(tree, n);
        size_t siblings = parent && parent->children > 0 ? parent->children - 1 : 0;
        n->role_dirty |= n->children != n->children_before || n->siblings != siblings;
        n->siblings = siblings;
    }
}

/* Marks the ancestors of training processes. The walk up from a process stops at an ancestor that
 * is already marked, so each node is visited once. */
static void find_trainers(struct proc_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        n->trained_before = n->child_trains;
        n->child_trains = false;
    }
    for (size_t i = 0; i < tree->count; i++) {
        const struct tree_node *n = tree->nodes[i];
        if (!n->pub.alive || n->pub.info.role != ROLE_MAIN)
            continue;
        struct tree_node *up = node_parent(tree, n);
        for (; up && !up->child_trains; up = node_parent(tree, up))
            up->child_trains = true;
    }
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        n->role_dirty |= n->child_trains != n->trained_before;
    }
}

/* Guesses each role once, from the oldest process to the youngest, so that most parents come before
 * their children. Returns true if a role has changed. */
static bool settle_once(struct proc_tree *tree, uint64_t now_ns)
{
    bool changed = false;
    tree->role_stamp++;
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        if (!n->pub.alive)
            continue;
        const struct tree_node *parent = node_parent(tree, n);
        bool parent_changed = parent && parent->role_stamp + 1 >= tree->role_stamp;
        if (!n->role_dirty && !parent_changed)
            continue;
        if (guess_role(tree, n)) {
            n->role_stamp = tree->role_stamp;
            changed = true;
            tree_emit(tree, n, PROCESS_ROLE, now_ns);
        }
    }
    return changed;
}

/* Reads the names of N, which could not be read before. The emitted event adds the names to the
 * recording. */
static void read_late_names(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    tree_read_names(tree, n);
    if (n->names_due)
        return;
    n->role_dirty = true;
    tree_emit(tree, n, PROCESS_ROLE, now_ns);
}

void settle_roles(struct proc_tree *tree, uint64_t now_ns)
{
    /* maximum number of rounds, in case the roles of two processes keep changing each other */
    enum { PASSES_MAX = 16 };
    bool any = tree->kin_dirty;
    for (size_t i = 0; i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        if (n->pub.alive && n->names_due)
            read_late_names(tree, n, now_ns);
        if (n->pub.alive && now_ns >= n->maps_due_ns)
            refresh_maps(tree, n, now_ns);
        any |= n->role_dirty;
    }
    for (int pass = 0; any && pass < PASSES_MAX; pass++) {
        if (pass == 0)
            count_kin(tree);
        find_trainers(tree);
        any = settle_once(tree, now_ns);
    }
    tree->kin_dirty = false;
    /* use a new stamp, so that the next call can distinguish its own role changes from the changes
     * made by this call */
    tree->role_stamp++;
}
