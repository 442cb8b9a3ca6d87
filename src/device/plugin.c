/* device/plugin.c: finding and loading accelerators' plugins.  A program that does not ask for an
 * accelerator loads nothing: the libraries behind one take 150 ms and 200 MiB. */
#include "device/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/site.h"

enum { PATH_BYTES = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the two below */
static const ebb__accel *loaded[EBB__MAX_ACCEL_KINDS];
static const ebb__accel *registered;

const ebb__accel_kind *ebb__accel_kind_at(int index)
{
    return index >= 0 && index < ebb__n_accel_kinds ? &ebb__accel_kinds[index] : NULL;
}

const ebb__accel_kind *ebb__accel_kind_named(const char *name)
{
    for (int i = 0; i < ebb__n_accel_kinds; i++)
        if (strcmp(ebb__accel_kinds[i].name, name) == 0) return &ebb__accel_kinds[i];
    return NULL;
}

static const ebb__accel_host host_table = { .abi = EBB__ACCEL_ABI, .fail = ebb_fail };

const ebb__accel_host *ebb__accel_host_table(void) { return &host_table; }

void ebb__accel_register(const ebb__accel *table)
{
    pthread_mutex_lock(&lock);
    registered = table;
    pthread_mutex_unlock(&lock);
}

/* ---- where the plugin lies ------------------------------------------------------------------ */

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* "FOLDER/libebb_NAME.so", where FOLDER is that of the file `beside`, and then `more`.  False: not there. */
static bool find_beside(char path[PATH_BYTES], const char *beside, const char *more, const char *name)
{
    const char *slash = strrchr(beside, '/');
    int folder = slash ? (int)(slash - beside) : 0;
    int n = snprintf(path, PATH_BYTES, "%.*s%s/libebb_%s.so", slash ? folder : 1, slash ? beside : ".", more, name);
    return n > 0 && n < PATH_BYTES && is_file(path);
}

static bool find_near_library(char path[PATH_BYTES], const char *name)
{
    Dl_info info;
    char program[PATH_BYTES];
    if (dladdr(&host_table, &info) && info.dli_fname && strchr(info.dli_fname, '/') &&
        find_beside(path, info.dli_fname, "", name))
        return true;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n <= 0) return false;
    program[n] = '\0';
    return find_beside(path, program, "", name) || find_beside(path, program, "/../lib", name);
}

/* `said`: a folder, or NULL. */
static ebb_status find(char path[PATH_BYTES], const char *said, const ebb__accel_kind *kind)
{
    if (said && *said) {
        int n = snprintf(path, PATH_BYTES, "%s/libebb_%s.so", said, kind->name);
        if (n < PATH_BYTES && is_file(path)) return EBB_OK;
        return ebb_fail(EBB_EDEVICE, "device %s: EBB_PLUGIN_PATH: there is no libebb_%s.so in \"%.400s\"; it names the "
                        "plugin's folder or file", kind->name, kind->name, said);
    }
    if (find_near_library(path, kind->name)) return EBB_OK;
    return ebb_fail(EBB_EDEVICE, "device %s: libebb_%s.so lies neither beside ebb's library nor beside the program; "
                    "EBB_PLUGIN_PATH names its folder or the file", kind->name, kind->name);
}

/* ---- loading -------------------------------------------------------------------------------- */

/* Left open: the plugin needs it. */
static ebb_status probe_driver(const ebb__accel_kind *kind)
{
    if (dlopen(kind->driver, RTLD_LAZY | RTLD_LOCAL)) return EBB_OK;
    return ebb_fail(EBB_EDEVICE, "device %s: %s (%s)", kind->name, kind->lacking, dlerror());
}

static ebb_status check_table(const ebb__accel *table, const ebb__accel_kind *kind, const char *path)
{
    if (!table)
        return ebb_fail(EBB_EDEVICE, "device %s: %s has nothing for this ebb, whose plugin interface is number %d",
                        kind->name, path, EBB__ACCEL_ABI);
    if (table->abi != EBB__ACCEL_ABI)
        return ebb_fail(EBB_EDEVICE,
                        "device %s: %s has plugin interface number %d, this ebb has %d; take both from one "
                        "build",
                        kind->name, path, table->abi, EBB__ACCEL_ABI);
    if (strcmp(table->name, kind->name) != 0)
        return ebb_fail(EBB_EDEVICE, "device %s: %s is the plugin of %s", kind->name, path, table->name);
    return EBB_OK;
}

static ebb_status load_file(const ebb__accel **out, const ebb__accel_kind *kind, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* for good: such libraries do not unload cleanly */
    if (!library) return ebb_fail(EBB_EDEVICE, "device %s: %s", kind->name, dlerror());
    ebb__accel_entry *entry;
    void *symbol = dlsym(library, EBB__ACCEL_ENTRY);
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast between the two */
    if (!entry)
        return ebb_fail(EBB_EDEVICE, "device %s: %s has no %s()", kind->name, path, EBB__ACCEL_ENTRY);
    const ebb__accel *table = entry(EBB__ACCEL_ABI);
    EBB__TRY(check_table(table, kind, path));
    *out = table;
    return EBB_OK;
}

static ebb_status load(const ebb__accel **out, const ebb__accel_kind *kind)
{
    char path[PATH_BYTES];
    const char *said = getenv("EBB_PLUGIN_PATH");
    if (said && is_file(said)) return load_file(out, kind, said);
    if (said && *said && !is_there(said))
        return ebb_fail(EBB_EDEVICE, "device %s: EBB_PLUGIN_PATH: there is no \"%.400s\"; it names the plugin's folder "
                        "or file", kind->name, said);
    bool named = said && *said; /* what the user said is wrong is told before what the machine lacks */
    if (named) EBB__TRY(find(path, said, kind));
    EBB__TRY(probe_driver(kind));
    if (!named) EBB__TRY(find(path, NULL, kind));
    return load_file(out, kind, path);
}

ebb_status ebb__accel_load(const ebb__accel **out, const ebb__accel_kind *kind)
{
    const ebb__accel **at = &loaded[kind - ebb__accel_kinds];
    ebb_status st = EBB_OK;
    pthread_mutex_lock(&lock);
    if (registered && strcmp(registered->name, kind->name) == 0) {
        *out = registered;
    } else {
        if (!*at) st = load(at, kind);
        if (st == EBB_OK) *out = *at;
    }
    pthread_mutex_unlock(&lock);
    return st;
}

ebb_status ebb__accel_count(int *n, const ebb__accel *table)
{
    int found = 0;
    EBB__TRY(table->count(&host_table, &found));
    if (found < 1) return ebb_fail(EBB_EDEVICE, "device %s: this machine has none", table->name);
    *n = found;
    return EBB_OK;
}
