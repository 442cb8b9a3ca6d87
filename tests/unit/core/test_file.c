/* Reading files, making folders. */
#include "core/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "support/support.h"

Test(file, reads_a_file_whole_with_a_nul_behind)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    char *text = NULL;
    size_t bytes = 0, size = 0;
    write_file(path, "ab\0cd", 5);
    check_ok(ebb__file_size(&size, path));
    cr_assert_eq(size, 5);
    check_ok(ebb__file_read(&text, &bytes, path, 5));
    cr_assert_eq(bytes, 5);
    cr_assert_arr_eq(text, "ab\0cd", 6);
    ebb__free(text);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(file, reads_an_empty_file)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "empty");
    char *text = NULL;
    size_t bytes = 7;
    write_text(path, "");
    check_ok(ebb__file_read(&text, &bytes, path, 0));
    cr_assert_eq(bytes, 0);
    cr_assert_str_empty(text);
    ebb__free(text);
    temp_folder_remove(&folder);
}

Test(file, too_large_a_file_is_refused_with_both_sizes)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    char *text = NULL;
    size_t bytes = 7;
    write_text(path, "0123456789");
    check_fails(ebb__file_read(&text, &bytes, path, 9), EBB_EIO);
    check_message("10 bytes, at most 9");
    cr_assert_null(text);
    cr_assert_eq(bytes, 7);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(file, reads_a_range)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    char part[4] = "...";
    write_text(path, "0123456789");
    check_ok(ebb__file_read_at(path, 7, part, 3));
    cr_assert_str_eq(part, "789");
    check_ok(ebb__file_read_at(path, 10, part, 0));
    check_fails(ebb__file_read_at(path, 8, part, 3), EBB_EIO);
    check_message("beyond its end at 10");
    check_fails(ebb__file_read_at(path, SIZE_MAX, part, 2), EBB_EIO);
    check_fails(ebb__file_read_at(path, 2, part, SIZE_MAX), EBB_EIO);
    temp_folder_remove(&folder);
}

/* All three calls, the path and the reason in the message. */
static void check_unreadable(const char *path, const char *reason)
{
    char *text = NULL, part[2];
    size_t bytes;
    for (int call = 0; call < 3; call++) {
        ebb_status st = call == 0   ? ebb__file_size(&bytes, path)
                        : call == 1 ? ebb__file_read(&text, &bytes, path, 100)
                                    : ebb__file_read_at(path, 0, part, 1);
        cr_assert_eq(st, EBB_EIO);
        check_message(path);
        check_message(reason);
    }
}

Test(file, what_is_not_a_file_is_refused_with_its_reason)
{
    temp_folder folder = temp_folder_make();
    const char *pipe = temp_path(&folder, "pipe");
    check_unreadable(folder.path, "is a folder");
    check_unreadable(temp_path(&folder, "none"), "No such file");
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    check_unreadable(pipe, "is not a regular file");
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(file, no_memory_for_the_text)
{
    temp_folder folder = temp_folder_make();
    const char *path = temp_path(&folder, "a");
    char *text = NULL;
    size_t bytes;
    write_text(path, "x");
    ebb_fault_arm(1);
    check_fails(ebb__file_read(&text, &bytes, path, 100), EBB_ENOMEM);
    cr_assert_null(text);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

Test(file, make_dirs_makes_all_that_is_missing)
{
    temp_folder folder = temp_folder_make();
    check_ok(ebb__make_dirs(temp_path(&folder, "a/b//c/")));
    cr_assert(is_folder(temp_path(&folder, "a/b/c")));
    check_ok(ebb__make_dirs(temp_path(&folder, "a/b/c")));
    check_ok(ebb__make_dirs("/"));
    cr_assert_eq(chdir(folder.path), 0);
    check_ok(ebb__make_dirs("x/y"));
    cr_assert(is_folder(temp_path(&folder, "x/y")));
    cr_assert_eq(chdir("/"), 0);
    temp_folder_remove(&folder);
    check_no_live_blocks();
}

Test(file, make_dirs_says_what_is_in_the_way)
{
    temp_folder folder = temp_folder_make();
    write_text(temp_path(&folder, "file"), "x");
    check_fails(ebb__make_dirs(temp_path(&folder, "file")), EBB_EIO);
    check_message("is a file");
    check_fails(ebb__make_dirs(temp_path(&folder, "file/below")), EBB_EIO);
    check_message("/file: is a file");
    check_fails(ebb__make_dirs(""), EBB_EIO);
    ebb_fault_arm(1);
    check_fails(ebb__make_dirs(temp_path(&folder, "d")), EBB_ENOMEM);
    cr_assert_not(is_folder(temp_path(&folder, "d")));
    temp_folder_remove(&folder);
    check_no_live_blocks();
}
