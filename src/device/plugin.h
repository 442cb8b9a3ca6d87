/* device/plugin.h: the kinds of accelerators, and the plugins that bring them. */
#ifndef EBB_DEVICE_PLUGIN_H
#define EBB_DEVICE_PLUGIN_H

#include "device/accel.h"

/* What the library knows of a kind without its plugin. */
typedef struct ebb__accel_kind {
    const char *name;    /* "cuda": of devices; the plugin is libebb_cuda.so */
    const char *driver;  /* "libcuda.so.1": without it there is no device, and no plugin is loaded */
    const char *lacking; /* "no NVIDIA driver": said then */
    const char *profile; /* of its dry form where none is named; NULL: there is none */
    int min_compute;     /* compute capability, 10 * major + minor: the plugin refuses older devices; 0: its devices
                            have none, nor their profiles */
    bool graphs;         /* the plugin captures graphs (accel.h), so dry runs do */
    size_t (*workspace)(const ebb_call *call, int pass); /* scratch that a kernel wants; NULL: none does */
} ebb__accel_kind;

/* The rows: device/kinds.c. */
extern const ebb__accel_kind ebb__accel_kinds[];
extern const int ebb__n_accel_kinds;
enum { EBB__MAX_ACCEL_KINDS = 8 };

/* NULL past the last. */
const ebb__accel_kind *ebb__accel_kind_at(int index);
/* NULL: there is none of that name. */
const ebb__accel_kind *ebb__accel_kind_named(const char *name);

/* The table of a kind's plugin, loaded when it is asked for first and kept.  It is looked for beside the
 * library, beside the program and in the program's ../lib; or where EBB_PLUGIN_PATH says, which names a
 * folder, or the file itself: then the driver is not looked for first (fakes, emulators).
 * Errors: EDEVICE, saying what lacks. */
EBB_NODISCARD ebb_status ebb__accel_load(const ebb__accel **out, const ebb__accel_kind *kind);
/* Devices there are; at least 1.  Errors: EDEVICE, saying why there is none. */
EBB_NODISCARD ebb_status ebb__accel_count(int *n, const ebb__accel *table);
/* What every call that opens one is given. */
const ebb__accel_host *ebb__accel_host_table(void);
/* For tests: this table is used for the kind of its name, and no plugin looked for.  NULL: as before. */
void ebb__accel_register(const ebb__accel *table);

#endif
