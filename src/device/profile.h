/* device/profile.h: what a dry run knows of an accelerator: as much as decides the pool's layout.
 * The profiles of devices/NAME.json are part of the library; others are read from files like them. */
#ifndef EBB_DEVICE_PROFILE_H
#define EBB_DEVICE_PROFILE_H

#include "device/plugin.h"

/* A profile by its name ("h100-80gb") or, with a '/' or ".json" at its end, from a file.
 * Errors: EDEVICE (no such profile, says which there are; no such file; a device that the kind's plugin refuses),
 * EINVAL (the file is not a profile: says which key is wrong), ENOMEM. */
EBB_NODISCARD ebb_status ebb__profile_find(ebb__accel_facts *out, const ebb__accel_kind *kind, const char *name);
/* Names of the built-in ones; NULL past the last. */
const char *ebb__profile_name(int index);
/* The kind of which the built-in profile is; "" where its text does not say. */
enum { EBB__KIND_BYTES = 16 };
void ebb__profile_kind(char out[EBB__KIND_BYTES], int index);

/* One of devices/ as text (made by cmake/EbbEmbedTable.cmake). */
typedef struct ebb__profile_text {
    const char *name;
    const unsigned char *text;
    size_t bytes;
} ebb__profile_text;
extern const ebb__profile_text ebb__profile_texts[];
extern const int ebb__n_profile_texts;

#endif
