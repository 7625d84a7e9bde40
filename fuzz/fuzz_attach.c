/* Fuzzes the code that reads another process's memory: ELF headers, symbols, and Python frames. The
 * input is the content of the memory, starting at address MEMORY_AT. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "attach/elf.h"
#include "attach/interpreter.h"
#include "attach/stack.h"
#include "attach/target.h"
#include "target.h"

enum { MEMORY_AT = 0x1000, MEMORY_MAX = 1 << 16, PAGE_BYTES = 4096 };

static void check_thread(void *user, const struct stack_thread *thread)
{
    size_t *count = user;
    if (strlen(thread->name) >= sizeof thread->name)
        abort();
    for (size_t i = 0; i < thread->frame_count; i++) {
        const struct stack_frame *frame = &thread->frames[i];
        if (strchr(frame->file, '\n') || strchr(frame->function, '\033') || ++*count > 1 << 20)
            abort();
    }
}

static void read_stack(const struct attach_target *t, uint8_t minor)
{
    struct interpreter i = {.version = 0x03000000u | (uint32_t)(9 + minor % 4) << 16,
                            .state = MEMORY_AT,
                            .threads = MEMORY_AT,
                            .main_thread = MEMORY_AT,
                            .thread_next = 8,
                            .thread_interp = 16,
                            .thread_id = 152,
                            .text_type = 0x1001,
                            .bytes_type = 0x1002,
                            .code_type = 0x1003};
    size_t count = 0;
    i.has_layout = python_layout_find(i.version, NULL, &i.layout) == HEAP_PYTHON_OK;
    (void)stack_read(t, &i, check_thread, &count, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1, empty = -1;
    static struct proc_root root;
    struct elf_module m;
    uint64_t address;
    if (fd < 0) {
        fd = memfd_create("memory", MFD_CLOEXEC);
        /* /dev serves as a /proc folder without processes */
        empty = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
        root = (struct proc_root){.proc_fd = empty, .cgroup_fd = -1, .page_bytes = PAGE_BYTES};
    }
    if (size < 1 || size > MEMORY_MAX || fd < 0)
        return 0;
    const struct attach_target t = {.root = &root, .pid = 1, .mem_fd = fd, .name = "fuzz"};
    if (ftruncate(fd, MEMORY_AT) < 0 || !attach_write(fd, MEMORY_AT, data + 1, size - 1))
        return 0;
    if (elf_module_read(fd, MEMORY_AT, PAGE_BYTES, &m) == 0 &&
        elf_module_symbol(&m, "_PyRuntime", &address) && (address < m.start || address >= m.end))
        abort();
    read_stack(&t, data[0]);
    return 0;
}
