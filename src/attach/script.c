/* Writes the Python scripts for a running job, in ASCII. They only load and call ebb._attach, which
 * makes all changes in the job. */
#include "attach/script.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/io.h"

/* Appends PATH as a Python expression; PATH may contain any bytes. */
static void add_path(struct buf *out, const char *path)
{
    if (!path) {
        buf_add_str(out, "None");
        return;
    }
    buf_add_str(out, "os.fsdecode(b'");
    for (; *path; path++)
        buf_printf(out, isalnum((unsigned char)*path) || strchr("/._- ", *path) ? "%c" : "\\x%02x",
                   (unsigned char)*path);
    buf_add_str(out, "')");
}

/* The package is loaded from its own folder without changing sys.path, because the parent folder
 * may be the site-packages of another environment. */
static const char load[] =
    "    import importlib.util\n"
    "    if 'ebb' not in sys.modules:\n"
    "        spec = importlib.util.spec_from_file_location(\n"
    "            'ebb', package + '/__init__.py', submodule_search_locations=[package])\n"
    "        module = importlib.util.module_from_spec(spec)\n"
    "        sys.modules['ebb'] = module\n"
    "        try:\n"
    "            spec.loader.exec_module(module)\n"
    "        except BaseException:\n"
    "            del sys.modules['ebb']\n"
    "            raise\n"
    "    import ebb._attach\n";

/* Ctrl-C while the script runs is meant for the program, so the script raises it again in the main
 * thread. */
static const char tail[] =
    "    return 'STATUS=done\\n'\n"
    "def report():\n"
    "    try:\n"
    "        text = act()\n"
    "    except KeyboardInterrupt:\n"
    "        import _thread\n"
    "        _thread.interrupt_main()\n"
    "        text = 'STATUS=failed\\nREASON=the request was interrupted\\n'\n"
    "    except BaseException as e:\n"
    "        why = ascii(e)[:300]\n"
    "        text = 'STATUS=failed\\nREASON=' + why + '\\n'\n"
    "    text = 'KIND=attach\\n' + text\n"
    "    try:\n"
    "        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:\n"
    "            s.sendto(text.encode(), path)\n"
    "    except OSError:\n"
    "        pass\n"
    "if os.getpid() == pid:\n"
    "    report()\n";

static void add_head(struct buf *out, const struct script *s)
{
    buf_printf(out, "import os, socket, sys\npid = %d\npath = ", (int)s->pid);
    add_path(out, s->socket);
    buf_add_str(out, "\npackage = ");
    add_path(out, s->package);
    buf_add_str(out, "\ndef act():\n");
}

static int script_write(const struct script *s, const char *name, struct buf *text,
                        char ret_path[SCRIPT_PATH_MAX], struct err *err)
{
    int len = snprintf(ret_path, SCRIPT_PATH_MAX, "%s/%s%d", s->folder, name, (int)s->pid);
    int fd = len >= SCRIPT_PATH_MAX
                 ? -1
                 : open(ret_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    int r = text->failed ? -ENOMEM : len >= SCRIPT_PATH_MAX ? -ENAMETOOLONG : fd < 0 ? -errno : 0;
    if (r == 0)
        r = io_write_all(fd, text->data, text->len);
    if (fd >= 0)
        close(fd);
    buf_fini(text);
    return r < 0 ? err_set(err, r, "cannot write %s: %s", ret_path, strerror(-r)) : 0;
}

int script_write_start(const struct script *s, char ret_path[SCRIPT_PATH_MAX], struct err *err)
{
    struct buf text = {0};
    add_head(&text, s);
    buf_add_str(&text, load);
    buf_add_str(&text, "    ebb._attach.start(socket=path, run_dir=");
    add_path(&text, s->run_dir);
    buf_add_str(&text, ", library=");
    add_path(&text, s->library);
    buf_printf(&text, ", heap_interval=%" PRIu64 ")\n%s", s->heap_interval_bytes, tail);
    return script_write(s, "start", &text, ret_path, err);
}

int script_write_stop(const struct script *s, char ret_path[SCRIPT_PATH_MAX], struct err *err)
{
    struct buf text = {0};
    add_head(&text, s);
    buf_printf(&text,
               "    part = sys.modules.get('ebb._attach')\n"
               "    if part is None or not part.is_attached():\n"
               "        raise RuntimeError('ebb is not attached to this process')\n"
               "    part.stop()\n%s",
               tail);
    return script_write(s, "stop", &text, ret_path, err);
}
