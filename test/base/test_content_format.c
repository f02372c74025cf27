/* test_content_format.c - formats that are known by their first bytes. */
#include "base/file.h"
#include "test/tests.h"

#define BYTES(text) text, sizeof text - 1

static const struct {
  const char *bytes;
  size_t size;
  const char *kind; /* NULL: none */
} cases[] = {
    {BYTES("GGUF\3\0\0\0"), "a GGUF file"},
    {BYTES("\x89PNG\r\n\x1a\n"), "a PNG image"},
    {BYTES("\xff\xd8\xff\xe0\0\x10JFIF"), "a JPEG image"},
    {BYTES("GIF89a\1\0"), "a GIF image"},
    {BYTES("RIFF\1\2\3\4WEBPVP8 "), "a WebP image"},
    {BYTES("RIFF\1\2\3\4WAVEfmt "), "a sound (WAV)"},
    {BYTES("RIFF\1\2\3\4what"), NULL},
    {BYTES("RIFF\1\2\3\4WEB"), NULL}, /* too short */
    {BYTES("\0\0\0\x18"
           "ftypmp42"),
     "a sound, an image or a film (MP4)"},
    {BYTES("ID3\4\0"), "a sound (MP3)"},
    {BYTES("%PDF-1.7\n"), "a PDF"},
    {BYTES("PK\3\4\x14\0"), "a zip archive (as docx, odt and epub are)"},
    {BYTES("\x1f\x8b\x08"), "compressed by gzip"},
    {BYTES("\x28\xb5\x2f\xfd"), "compressed by zstd"},
    {BYTES("\x40\x01\0\0\0\0\0\0{\"__metadata__\""), "a safetensors file"},
    {BYTES("\xff\xfeh\0i\0"), "UTF-16 text"},
    {BYTES("\xfe\xff\0h\0i"), "UTF-16 text"},
    {BYTES("h\0e\0l\0l\0o\0"), "UTF-16 text"},
    {BYTES("\0h\0e\0l\0l\0o"), "UTF-16 text"},
    {BYTES("h\0e\0l\0"), NULL},
    {BYTES("h\0e\0l\0\0\0o\0"), NULL},
    {BYTES("\0\0\0\0\0\0\0\0"), NULL},
    {BYTES("\x89PN"), NULL},
    {BYTES(""), NULL},
    {BYTES("hello world"), NULL},
};

TEST(formats_are_known_by_their_first_bytes) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *kind = content_format(cases[i].bytes, cases[i].size);
    if (!kind != !cases[i].kind || (kind && strcmp(kind, cases[i].kind) != 0))
      fail_msg("case %zu: %s, expected %s", i, kind ? kind : "none", cases[i].kind ? cases[i].kind : "none");
  }
}
