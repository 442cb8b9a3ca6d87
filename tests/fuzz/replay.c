/* Runs a fuzz target on files, without libFuzzer:
 *
 *     fuzz_json [--mutate N] FILE_OR_FOLDER...
 *
 * Each file is given to the target as it is, then in N changed forms, the same ones each time. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct input {
    uint8_t *data;
    size_t bytes;
} input;

static int n_mutations;
static long n_files, n_runs;

static _Noreturn void stop(const char *what, const char *path)
{
    fprintf(stderr, "replay: %s: %s\n", path, what);
    exit(2);
}

/* A copy of exactly the input's size, so that the address sanitizer sees each byte too many. */
static void run_copy(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (!copy) stop("no memory", "copy");
    if (bytes) memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
    n_runs++;
}

/* One change at a place: a byte replaced, some dropped, or some said twice. */
static size_t change(uint8_t *data, size_t bytes, const uint32_t words[4])
{
    static const uint8_t telling[] = "{}[]\",:\\u0eE.-+ \n\0\x7f\x80\xC3\xED\xF4\xFF";
    size_t at = words[1] % bytes, length = 1 + words[2] % 8;
    if (length > bytes - at) length = bytes - at;
    switch (words[0] % 4) {
    case 0: data[at] = (uint8_t)words[3]; return bytes;
    case 1: data[at] = telling[words[3] % (sizeof telling - 1)]; return bytes;
    case 2: memmove(data + at, data + at + length, bytes - at - length); return bytes - length;
    default: memmove(data + at + length, data + at, bytes - at); return bytes + length;
    }
}

static void run_mutated(const input *in, uint64_t number)
{
    enum { CHANGES = 4, GROWTH = 8 * CHANGES };
    uint8_t *data = malloc(in->bytes + GROWTH);
    if (!data) stop("no memory", "mutation");
    size_t bytes = in->bytes;
    memcpy(data, in->data, bytes);
    for (uint64_t i = 0; i <= number % CHANGES && bytes > 0; i++) {
        uint32_t words[4];
        ebb__philox(number, i, words);
        bytes = change(data, bytes, words);
    }
    run_copy(data, bytes);
    free(data);
}

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) stop("cannot be read", path);
    long size = ftell(file);
    rewind(file);
    if (size < 0) stop("has no size", path);
    input in = { malloc((size_t)size + 1), (size_t)size };
    if (!in.data || fread(in.data, 1, in.bytes, file) != in.bytes) stop("cannot be read", path);
    fclose(file);
    run_copy(in.data, in.bytes);
    for (int i = 0; i < n_mutations; i++) run_mutated(&in, (uint64_t)i);
    free(in.data);
    n_files++;
}

static void run_path(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) {
        run_file(path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char inside[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        run_file(inside);
    }
    closedir(folder);
}

int main(int argc, char **argv)
{
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--mutate") == 0) {
        n_mutations = atoi(argv[2]);
        first = 3;
    }
    for (int i = first; i < argc; i++) run_path(argv[i]);
    printf("%ld files, %ld runs\n", n_files, n_runs);
    return n_files > 0 ? 0 : 2;
}
