/* device/list.c: which devices there are. */
#include <ebb/device.h>
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "device/plugin.h"
#include "device/profile.h"

static void set_facts(ebb_device_info *out, const ebb__accel_facts *f)
{
    snprintf(out->description, sizeof out->description, "%s%s%s", f->name, *f->libraries ? "; " : "", f->libraries);
    out->memory_bytes = f->capacity_bytes;
    out->lent_bytes = f->lent_bytes;
}

static void set_reason(ebb_device_info *out)
{
    out->available = false;
    snprintf(out->reason, sizeof out->reason, "%.*s", (int)sizeof out->reason - 1, ebb_message());
}

/* Of a device that is known to be there, or of a dry one. */
static void describe(ebb_device_info *out)
{
    ebb__accel_facts facts;
    ebb_status st = ebb__device_facts(&facts, out->name);
    out->available = st == EBB_OK;
    if (st == EBB_OK) set_facts(out, &facts);
    else set_reason(out);
}

/* Entries of one kind, numbered from 0; the number of them where index is past the last. */
static int accelerators_of(ebb_device_info *out, const ebb__accel_kind *kind, int index)
{
    const ebb__accel *table = NULL;
    int n = 0;
    ebb_status st = ebb__accel_load(&table, kind);
    if (st == EBB_OK) st = ebb__accel_count(&n, table);
    if (index >= (st == EBB_OK ? n : 1)) return st == EBB_OK ? n : 1;
    if (st == EBB_OK) {
        snprintf(out->name, sizeof out->name, "%s:%d", kind->name, index);
        describe(out);
    } else {
        snprintf(out->name, sizeof out->name, "%s", kind->name);
        set_reason(out);
    }
    return -1;
}

static bool dry_accelerator(ebb_device_info *out, int index)
{
    const char *profile = ebb__profile_name(index);
    if (!profile) return false;
    char kind[EBB__KIND_BYTES];
    ebb__profile_kind(kind, index);
    snprintf(out->name, sizeof out->name, "dry:%s:%s", kind, profile);
    describe(out);
    return true;
}

const char *ebb_device_kind(int index)
{
    if (index == 0) return "cpu";
    const ebb__accel_kind *kind = ebb__accel_kind_at(index - 1);
    return kind ? kind->name : NULL;
}

bool ebb_device_info_get(ebb_device_info *out, int index)
{
    *out = (ebb_device_info){ .name = "cpu", .available = true };
    if (index < 0) return false;
    if (index-- == 0) return true;
    for (int k = 0; ebb__accel_kind_at(k); k++) {
        int n = accelerators_of(out, ebb__accel_kind_at(k), index);
        if (n < 0) return true;
        index -= n;
    }
    snprintf(out->name, sizeof out->name, "dry:cpu");
    return index == 0 || dry_accelerator(out, index - 1);
}
