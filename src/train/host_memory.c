/* What the machine can still give. */
#include <stdio.h>
#include <string.h>

#include "train/run.h"

/* "NAME:  12345 kB" lines of /proc/meminfo; 0 where there is none. */
static size_t meminfo_bytes(const char *name)
{
    char line[256], key[64];
    unsigned long long kilobytes, found = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    if (!file) return 0;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "%63[^:]: %llu", key, &kilobytes) == 2 && strcmp(key, name) == 0)
            found = kilobytes;
    fclose(file);
    return (size_t)found * 1024;
}

/* A file with one number; 0 where it is absent or says "max". */
static size_t number_in(const char *path)
{
    unsigned long long value = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%llu", &value) != 1) value = 0;
    fclose(file);
    return (size_t)value;
}

size_t ebb__host_available_bytes(void)
{
    size_t available = meminfo_bytes("MemAvailable") + meminfo_bytes("SwapFree");
    size_t group = number_in("/sys/fs/cgroup/memory.max"),
           used = number_in("/sys/fs/cgroup/memory.current");
    if (group == 0) return available;
    size_t left = group > used ? group - used : 1;
    return available == 0 || left < available ? left : available;
}
