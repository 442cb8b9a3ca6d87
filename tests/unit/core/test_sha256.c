/* Vectors of FIPS 180-2 and NIST's example values. */
#include "core/sha256.h"

#include <string.h>

#include "support/support.h"

static const char *digest(const char *text, size_t bytes)
{
    static char hex[65];
    ebb__sha256 h;
    ebb__sha256_init(&h);
    ebb__sha256_add(&h, text, bytes);
    ebb__sha256_hex(&h, hex);
    return hex;
}

Test(sha256, gives_the_published_digests)
{
    static const struct {
        const char *text, *hex;
    } rows[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
          "lmnopqrs"
          "mnopqrstnopqrstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_assert_str_eq(digest(rows[i].text, strlen(rows[i].text)), rows[i].hex);
}

Test(sha256, a_million_letters_in_uneven_pieces)
{
    static char letters[1000];
    char hex[65];
    ebb__sha256 h;
    memset(letters, 'a', sizeof letters);
    ebb__sha256_init(&h);
    size_t left = 1000000;
    for (size_t piece = 0; left > 0; piece = (piece + 37) % 1000) {
        size_t bytes = piece < left ? piece : left;
        ebb__sha256_add(&h, letters, bytes);
        left -= bytes;
    }
    ebb__sha256_hex(&h, hex);
    cr_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Padding takes one block or two: every length around the borders, whole and byte by byte. */
Test(sha256, pieces_do_not_matter_at_any_length)
{
    char text[200], hex[65];
    for (int i = 0; i < 200; i++) text[i] = (char)i;
    for (size_t n = 0; n < sizeof text; n++) {
        ebb__sha256 h;
        ebb__sha256_init(&h);
        for (size_t i = 0; i < n; i++) ebb__sha256_add(&h, text + i, 1);
        ebb__sha256_add(&h, NULL, 0);
        ebb__sha256_hex(&h, hex);
        cr_assert_str_eq(hex, digest(text, n), "%zu bytes", n);
    }
    cr_assert_str_eq(digest(text, 55),
                     "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59");
    cr_assert_str_eq(digest(text, 56),
                     "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562");
    cr_assert_str_eq(digest(text, 64),
                     "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108");
}
