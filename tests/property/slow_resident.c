/* The system's view: resident memory of the process is what the pool has reserved plus what is reported as
 * outside it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ebb/train.h>

#include "support/support.h"

/* 4 states of 50 million parameters: 800 MB. */
static const char model[] =
    "{\"name\": \"wide\", \"seed\": 1, \"model\": {\"type\": \"mlp\", \"input\": 4096, \"hidden\": "
    "[4096, 4096], "
    "\"output\": 4096, \"activation\": \"relu\"}, \"data\": {\"type\": \"synthetic\", \"kind\": "
    "\"samples\", "
    "\"items\": 64, \"eval_items\": 0}, \"train\": {\"steps\": 2, \"batch\": 32, "
    "\"optimizer\": {\"type\": \"adamw\", \"lr\": 1e-4}}, \"memory\": {}}";

static double resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void note_resident(void *user, const ebb_progress *progress)
{
    (void)progress;
    *(double *)user = resident_bytes();
}

static void check_agreement(const char *allocator)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "config.json"), *sets[] = { allocator };
    ebb_config *config = NULL;
    ebb_train_result r;
    double resident = 0;
    write_text(path, model);
    check_ok(ebb_config_load(&config, path, sets, 1));
    ebb_train_options o = {
        .struct_bytes = sizeof o, .threads = 2, .on_progress = note_resident, .user = &resident
    };
    check_ok(ebb_train(&r, config, &o));
    if (resident == 0) cr_skip("the system does not tell what is resident");
    double known = (double)r.memory.reserved_bytes + (double)r.outside_bytes;
    cr_assert(r.memory.reserved_bytes > 500e6, "only %zu reserved", r.memory.reserved_bytes);
    cr_assert(resident <= 1.05 * known && known <= 1.05 * resident,
              "%s: %.0f resident, %.0f reserved and outside", allocator, resident, known);
    ebb_config_free(config);
    temp_folder_remove(&folder);
}

Test(resident_slow, the_system_agrees_with_reserved_and_outside_bytes)
{
    check_agreement("memory.allocator={}");
    check_agreement("memory.allocator={\"expandable_segments\": true}");
    check_agreement("memory.offset_plan=true");
}
