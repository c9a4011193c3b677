/* A second implementation of docs/how/numerics.md, to check receipts of computations.

   It shares no code with the package. It reads a model's GGUF file and receipts, computes prompts and answers again and
   says "equal", or where they differ. README.md beside this file says how to build and use it. "Page" in comments is
   docs/how/numerics.md, and docs/how/gguf.md and docs/how/sampling.md where it refers to them.

   C11, libc, and sqrt of libm. Every float operation below is written in the page's order and rounds once, so a
   compiler must not fuse or reorder them: -ffp-contract=off, and no -ffast-math. */

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "float operations must round to float: on 32-bit x86 use -msse2 -mfpmath=sse"
#endif
#ifdef __FAST_MATH__
#error "fast math changes bits: leave out -ffast-math and -Ofast"
#endif

enum { EQUAL = 0, DIFFERENT = 1, FAILED = 2 };

/* ---- Errors, memory, bytes -------------------------------------------------------------------------------------- */

static const char *about; /* the file that an error is about */

_Noreturn static void fail(const char *format, ...) {
    char message[512];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    for (char *c = message; *c; c++) *c = *c < ' ' || *c > '~' ? '?' : *c; /* names of a damaged file */
    fprintf(stderr, "verifier: %s%s%s\n", about ? about : "", about ? ": " : "", message);
    exit(FAILED);
}

static void *allocate(size_t count, size_t size) {
    void *memory = count > SIZE_MAX / (size ? size : 1) ? NULL : calloc(count ? count : 1, size ? size : 1);
    if (memory == NULL) fail("there is no memory for %zu x %zu bytes", count, size);
    return memory;
}

static float *floats(size_t count) { return allocate(count, sizeof(float)); }

typedef struct {
    uint8_t *at;
    size_t size;
} Bytes;

static Bytes read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    Bytes all = {NULL, 0};
    size_t room = 1 << 16, got;
    about = path;
    if (file == NULL) fail("it cannot be opened: %s", strerror(errno));
    if (fseek(file, 0, SEEK_END) == 0) {
        long end = ftell(file);
        if (end > 0) room = (size_t)end + 1;
    }
    rewind(file);
    all.at = allocate(room, 1);
    while ((got = fread(all.at + all.size, 1, room - all.size, file)) > 0) {
        all.size += got;
        if (all.size == room) {
            uint8_t *more = room > SIZE_MAX / 2 ? NULL : realloc(all.at, room * 2);
            if (more == NULL) fail("there is no memory for more than %zu bytes", room);
            all.at = more;
            room *= 2;
        }
    }
    if (ferror(file)) fail("it cannot be read: %s", strerror(errno));
    fclose(file);
    return all;
}

static uint16_t u16_at(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t u32_at(const uint8_t *p) { return u16_at(p) | (uint32_t)u16_at(p + 2) << 16; }
static uint64_t u64_at(const uint8_t *p) { return u32_at(p) | (uint64_t)u32_at(p + 4) << 32; }

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint64_t wide_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- SHA-256 (FIPS 180-4) --------------------------------------------------------------------------------------- */

typedef struct {
    uint32_t state[8];
    uint8_t block[64];
    uint64_t length;
} Sha;

typedef struct {
    uint8_t of[32];
} Digest;

static const uint32_t SHA_ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

static Sha sha_begin(void) {
    Sha s = {{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, {0}, 0};
    return s;
}

static uint32_t turned(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha_block(uint32_t *state, const uint8_t *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] =
            w[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[i - 7] + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t one =
            v[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + SHA_ROUNDS[i] + w[i];
        uint32_t two = (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

static void sha_add(Sha *s, const void *bytes, size_t size) {
    const uint8_t *p = bytes;
    size_t held = s->length % 64;
    s->length += size;
    if (held) {
        size_t part = size < 64 - held ? size : 64 - held;
        memcpy(s->block + held, p, part);
        p += part, size -= part;
        if (held + part < 64) return;
        sha_block(s->state, s->block);
    }
    for (; size >= 64; p += 64, size -= 64) sha_block(s->state, p);
    if (size) memcpy(s->block, p, size);
}

static Digest sha_end(Sha *s) {
    uint64_t n = s->length * 8;
    uint8_t end[72] = {0x80};
    Digest made;
    size_t padding = (119 - s->length % 64) % 64 + 1;
    for (int i = 0; i < 8; i++) end[padding + i] = (uint8_t)(n >> (56 - 8 * i));
    sha_add(s, end, padding + 8);
    for (int i = 0; i < 32; i++) made.of[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
    return made;
}

static Digest sha_of(const void *bytes, size_t size) {
    Sha s = sha_begin();
    sha_add(&s, bytes, size);
    return sha_end(&s);
}

static const char *digest_text(Digest d, char out[72]) {
    memcpy(out, "sha256:", 8);
    for (int i = 0; i < 32; i++) snprintf(out + 7 + 2 * i, 3, "%02x", d.of[i]);
    return out;
}

/* ---- JSON: reading, and the canonical form ---------------------------------------------------------------------- */

typedef enum { J_NULL, J_FALSE, J_TRUE, J_INTEGER, J_FLOAT, J_TEXT, J_LIST, J_OBJECT } JsonKind;

typedef struct Json {
    JsonKind kind;
    char *name;            /* in an object */
    char *text;            /* of a text or a number; ends with 0, a text may have others before */
    size_t size;           /* of the text; members of a list or object */
    struct Json **members; /* of an object by name, in order of bytes, which is that of code points */
} Json;

enum { JSON_DEPTH = 64 };

typedef struct {
    const uint8_t *at, *end;
} Reader;

static Json *read_json(Reader *r, int depth);

static void skip_space(Reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static void expect(Reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != (uint8_t)c) fail("it is no JSON: '%c' is missing", c);
    r->at++;
}

static bool next_is(Reader *r, char c) {
    skip_space(r);
    if (r->at == r->end || *r->at != (uint8_t)c) return false;
    r->at++;
    return true;
}

static unsigned read_hex(Reader *r) {
    unsigned value = 0;
    if (r->end - r->at < 4) fail("it is no JSON: a text is cut");
    for (int i = 0; i < 4; i++) {
        uint8_t c = *r->at++;
        bool digit = c >= '0' && c <= '9', letter = (c | 32) >= 'a' && (c | 32) <= 'f';
        if (!digit && !letter) fail("it is no JSON: \\u needs four digits");
        value = value * 16 + (unsigned)(digit ? c - '0' : (c | 32) - 'a' + 10);
    }
    return value;
}

static char *put_utf8(char *out, unsigned code) {
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *out++ = (char)((0xF00 >> more & 0xFF) | code >> (6 * more));
    while (more--) *out++ = (char)(0x80 | (code >> (6 * more) & 0x3F));
    return out;
}

static char *read_escape(Reader *r, char *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    uint8_t c = r->at < r->end ? *r->at++ : 0;
    const char *found = c ? strchr(from, c) : NULL;
    if (found != NULL) {
        *out = to[found - from];
        return out + 1;
    }
    if (c != 'u') fail("it is no JSON: an escape is unknown");
    unsigned code = read_hex(r);
    if (code >= 0xD800 && code < 0xDC00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
        r->at += 2;
        unsigned low = read_hex(r);
        if (low < 0xDC00 || low > 0xDFFF) fail("it is no JSON: a text is no Unicode");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xD800 && code < 0xE000) {
        fail("it is no JSON: a text is no Unicode");
    }
    return put_utf8(out, code);
}

static char *read_text(Reader *r, size_t *size) {
    const uint8_t *end;
    expect(r, '"');
    for (end = r->at; end < r->end && *end != '"'; end++) end += *end == '\\';
    if (end >= r->end) fail("it is no JSON: a text does not end");
    char *text = allocate((size_t)(end - r->at) + 1, 1), *out = text;
    while (*r->at != '"') {
        if (*r->at < 0x20) fail("it is no JSON: a text has a control character");
        if (*r->at == '\\') {
            r->at++;
            out = read_escape(r, out);
        } else {
            *out++ = (char)*r->at++;
        }
    }
    r->at++;
    *size = (size_t)(out - text);
    return text;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(Json *const *)a)->name, (*(Json *const *)b)->name);
}

static void read_members(Reader *r, Json *made, int depth) {
    bool object = made->kind == J_OBJECT;
    size_t room = 0, length;
    char close = object ? '}' : ']';
    if (depth > JSON_DEPTH) fail("it has more than %d levels", JSON_DEPTH);
    r->at++;
    if (next_is(r, close)) return;
    do {
        char *name = NULL;
        if (object) {
            name = read_text(r, &length);
            if (strlen(name) != length) fail("it has a name with a character 0");
            expect(r, ':');
        }
        if (made->size == room) {
            room = room ? room * 2 : 8;
            made->members = realloc(made->members, room * sizeof *made->members);
            if (made->members == NULL) fail("there is no memory for it");
        }
        Json *member = read_json(r, depth);
        member->name = name;
        made->members[made->size++] = member;
    } while (next_is(r, ','));
    expect(r, close);
    if (!object) return;
    qsort(made->members, made->size, sizeof *made->members, by_name);
    for (size_t i = 1; i < made->size; i++) {
        if (!strcmp(made->members[i - 1]->name, made->members[i]->name))
            fail("it has %s twice", made->members[i]->name);
    }
}

static void read_number(Reader *r, Json *made) {
    const uint8_t *start = r->at, *digits;
    made->kind = J_INTEGER;
    if (r->at < r->end && *r->at == '-') r->at++;
    for (digits = r->at; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) continue;
    if (r->at == digits || (*digits == '0' && r->at - digits > 1)) fail("it is no JSON: a value is unknown");
    while (r->at < r->end && *r->at != 0 && strchr("+-.eE0123456789", *r->at)) r->at++, made->kind = J_FLOAT;
    made->size = (size_t)(r->at - start);
    made->text = allocate(made->size + 1, 1);
    memcpy(made->text, start, made->size);
}

static Json *read_json(Reader *r, int depth) {
    static const char *const words[] = {"null", "false", "true"};
    Json *made = allocate(1, sizeof *made);
    skip_space(r);
    size_t left = (size_t)(r->end - r->at);
    if (left == 0) fail("it is no JSON: it ends early");
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (left >= n && !memcmp(r->at, words[i], n)) {
            r->at += n;
            made->kind = (JsonKind)(J_NULL + i);
            return made;
        }
    }
    if (*r->at == '"') {
        made->kind = J_TEXT;
        made->text = read_text(r, &made->size);
    } else if (*r->at == '{' || *r->at == '[') {
        made->kind = *r->at == '{' ? J_OBJECT : J_LIST;
        read_members(r, made, depth + 1);
    } else {
        read_number(r, made);
    }
    return made;
}

static Json *json_of(Bytes bytes) {
    Reader r = {bytes.at, bytes.at + bytes.size};
    Json *made = read_json(&r, 0);
    skip_space(&r);
    if (r.at != r.end) fail("it is no JSON: something follows the document");
    return made;
}

static Json *member(const Json *object, const char *name) {
    if (object == NULL || object->kind != J_OBJECT) return NULL;
    for (size_t i = 0; i < object->size; i++) {
        if (!strcmp(object->members[i]->name, name)) return object->members[i];
    }
    return NULL;
}

static bool is_text(const Json *value, const char *text) {
    return value != NULL && value->kind == J_TEXT && value->size == strlen(text) &&
           !memcmp(value->text, text, value->size);
}

static void canonical_text(Sha *s, const char *text, size_t size) {
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    sha_add(s, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        const char *found = text[i] ? strchr(from, text[i]) : NULL;
        char escape[8] = {'\\'};
        if (found != NULL) {
            escape[1] = to[found - from];
            sha_add(s, escape, 2);
        } else if ((uint8_t)text[i] < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)text[i]);
            sha_add(s, escape, 6);
        } else {
            sha_add(s, text + i, 1);
        }
    }
    sha_add(s, "\"", 1);
}

/* The canonical form of a value (CR 0.1, section 2), into a hash. False where it has a float. */
static bool canonical(Sha *s, const Json *value) {
    static const char *const words[] = {"null", "false", "true"};
    bool ok = true;
    switch (value->kind) {
        case J_FLOAT: return false;
        case J_INTEGER:
            if (!strcmp(value->text, "-0")) sha_add(s, "0", 1);
            else sha_add(s, value->text, value->size);
            break;
        case J_TEXT: canonical_text(s, value->text, value->size); break;
        case J_LIST:
        case J_OBJECT:
            sha_add(s, value->kind == J_LIST ? "[" : "{", 1);
            for (size_t i = 0; i < value->size; i++) {
                if (i) sha_add(s, ",", 1);
                if (value->kind == J_OBJECT) {
                    canonical_text(s, value->members[i]->name, strlen(value->members[i]->name));
                    sha_add(s, ":", 1);
                }
                ok = canonical(s, value->members[i]) && ok;
            }
            sha_add(s, value->kind == J_LIST ? "]" : "}", 1);
            break;
        default: sha_add(s, words[value->kind - J_NULL], strlen(words[value->kind - J_NULL]));
    }
    return ok;
}

/* ---- Single operations (page: "Ground rules") ------------------------------------------------------------------- */

/* fma(a, b, c): a * b is exact in float64. The sum is rounded to float64 first, which is only wrong where it is inexact
   and lies on a boundary of float32: then it is rounded to odd instead. */
static float fma_slow(double product, double c, double sum) {
    double t = sum - product, lost = (product - (sum - t)) + (c - t);
    uint64_t bits = wide_bits(sum);
    if (lost != 0 && sum - sum == 0 && !(bits & 1)) bits = (lost > 0) == (sum > 0) ? bits + 1 : bits - 1;
    return (float)double_of(bits);
}

static inline float fma32(float a, float b, float c) {
    double product = (double)a * b, sum = product + c;
    bool boundary = (wide_bits(sum) & 0x1FFFFFFF) == 0x10000000;
    bool tiny = sum < 0x1p-126 && sum > -0x1p-126 && sum != 0;
    return boundary || tiny ? fma_slow(product, c, sum) : (float)sum;
}

static float root(float x) { return (float)sqrt((double)x); } /* 53 bits are enough to round once */
static float rounded(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; } /* |x| < 2^22, ties to even */
static float magnitude(float x) { return float_of(bits_of(x) & 0x7FFFFFFF); }
static float larger(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }

static float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3FF;
    if (e == 31) return float_of(sign | 0x7F800000 | m << 13);
    if (e) return float_of(sign | (e + 112) << 23 | m << 13);
    return float_of(sign | bits_of((float)m * 0x1p-24f));
}

/* The float32 of x rounded to float16: nearest, ties to even. */
static float half_rounded(float x) {
    float a = magnitude(x), y;
    if (x != x) return x;
    if (a >= 65520.0f) y = INFINITY;
    else if (a < 0x1p-14f) y = (a + 0.5f) - 0.5f; /* steps of 2^-24: the ulp of 0.5 is 2^-24 */
    else {
        uint32_t bits = bits_of(a);
        y = float_of((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFFu);
    }
    return float_of(bits_of(y) | (bits_of(x) & 0x80000000));
}

/* Adds v_0 ... v_{n-1} over lanes (page: "Tree over L lanes"); lanes: float[count], of which v_i goes to i % count. */
static float fold(float *lanes, int count) {
    for (int distance = count / 2; distance; distance /= 2) {
        for (int l = 0; l < distance; l++) lanes[l] = lanes[l] + lanes[l + distance];
    }
    return lanes[0];
}

/* ---- Functions of float32 (page: "Norm, rotation, activation") -------------------------------------------------- */

static float exp32(float x) {
    static const float poly[] = {0x1.9f085cp-13f, 0x1.6d8d52p-10f, 0x1.111272p-7f,
                                 0x1.55548ep-5f,  0x1.555554p-3f,  0.5f};
    if (x != x) return x;
    x = x > -104.5f ? x : -104.5f;
    x = x < 89.0f ? x : 89.0f;
    float n = rounded(x * 0x1.715476p+0f);
    float h = x - n * 0.693359375f, l = n * -0x1.bd0106p-13f;
    float r = h - l, c = (h - r) - l, p = poly[0];
    for (int i = 1; i < 6; i++) p = p * r + poly[i];
    float t = 1.0f + r, u = r - (t - 1.0f);
    float y = t + (u + (p * (r * r) + c));
    int k = (int)n, half = k >= 0 ? k / 2 : -((1 - k) / 2);
    return (y * float_of((uint32_t)(half + 127) << 23)) * float_of((uint32_t)(k - half + 127) << 23);
}

/* x / (1 + e^-w), with what rounding the sum lost. */
static float times_sigmoid(float x, float w) {
    float e = exp32(-w), t = 1.0f + e;
    float u = ((e > 1.0f ? e : 1.0f) - t) + (e < 1.0f ? e : 1.0f);
    if (t == INFINITY) u = 0.0f;
    float q = x / t;
    return q - q * (u / t);
}

static float silu(float x) { return times_sigmoid(x, x); }

static float sigmoid(float x) {
    float e = exp32(-x), t = 1.0f + e;
    float u = ((e > 1.0f ? e : 1.0f) - t) + (e < 1.0f ? e : 1.0f);
    if (t == INFINITY) u = 0.0f;
    float q = 1.0f / t;
    return q - q * (u * q);
}

static float softplus(float x) {
    static const float poly[] = {0x1.dc3cbep-4f, 0x1.bc6abap-4f, 0x1.24ca56p-3f, 0x1.9998cep-3f, 0x1.555556p-2f};
    float t = exp32(-magnitude(x)), s = t / (2.0f + t), z = s * s, p = poly[0];
    if (x != x) return x;
    for (int i = 1; i < 5; i++) p = p * z + poly[i];
    return (x > 0.0f ? x : 0.0f) + (t - s * (t - (z + z) * p));
}

/* ---- The nearest float64 and float32 of powers, logarithms, cosines (page: "Tables") ------------------------------
   Numbers are pairs of float64, whose sum has about 104 bits. */

typedef struct {
    double hi, lo;
} Pair;

static const Pair LN2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

static Pair sum_of(double a, double b) {
    double s = a + b, t = s - a;
    return (Pair){s, (a - (s - t)) + (b - t)};
}

static Pair product_of(double a, double b) {
    double p = a * b, t = 134217729.0 * a, u = 134217729.0 * b;
    double ah = t - (t - a), al = a - ah, bh = u - (u - b), bl = b - bh;
    return (Pair){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

static Pair plus(Pair x, Pair y) {
    Pair s = sum_of(x.hi, y.hi), t = sum_of(x.lo, y.lo);
    s = sum_of(s.hi, s.lo + t.hi);
    return sum_of(s.hi, s.lo + t.lo);
}

static Pair times(Pair x, Pair y) {
    Pair p = product_of(x.hi, y.hi);
    return sum_of(p.hi, p.lo + (x.hi * y.lo + x.lo * y.hi));
}

static Pair negative(Pair x) { return (Pair){-x.hi, -x.lo}; }
static Pair exactly(double x) { return (Pair){x, 0}; }

static Pair over(Pair x, Pair y) {
    double q = x.hi / y.hi;
    Pair rest = plus(x, negative(times(y, exactly(q))));
    double r = rest.hi / y.hi;
    rest = plus(rest, negative(times(y, exactly(r))));
    return plus(sum_of(q, r), exactly(rest.hi / y.hi));
}

static double power_of_two(int n) { return double_of((uint64_t)(n + 1023) << 52); } /* of a normal number */

static Pair log_pair(double x) { /* x normal and above 0: 2 artanh((m - 1) / (m + 1)) + e ln 2 */
    int e = (int)(wide_bits(x) >> 52) - 1023;
    double m = double_of((wide_bits(x) & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000);
    if (m > 1.4142135623730951) m /= 2, e += 1;
    Pair s = over(sum_of(m, -1), sum_of(m, 1)), square = times(s, s), series = exactly(0);
    for (int n = 61; n > 0; n -= 2) series = plus(times(series, square), over(exactly(1), exactly(n)));
    return plus(times(times(s, series), exactly(2)), times(LN2, exactly(e)));
}

static Pair exp_pair(Pair x) {
    double k = (x.hi * 1.4426950408889634 + 0x1.8p52) - 0x1.8p52;
    Pair r = plus(x, negative(times(LN2, exactly(k)))), sum = exactly(1);
    for (int n = 28; n > 0; n--) sum = plus(exactly(1), over(times(sum, r), exactly(n)));
    return (Pair){sum.hi * power_of_two((int)k), sum.lo * power_of_two((int)k)};
}

static double nearest_log(double x) { return log_pair(x).hi; }
static double nearest_power(double base, double exponent) {
    return exp_pair(times(log_pair(base), exactly(exponent))).hi;
}

/* cos and sin of a float64 angle times a float64 factor, each rounded once to float32. */
static void turn_of(double angle, double factor, float out[2]) {
    static const double halves[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110}; /* pi / 2 */
    double n = (angle * 0.6366197723675814 + 0x1.8p52) - 0x1.8p52;
    Pair r = exactly(angle), c = exactly(0), s = exactly(0);
    for (int i = 0; i < 3; i++) r = plus(r, negative(product_of(n, halves[i])));
    Pair square = negative(times(r, r));
    for (int i = 28; i > 0; i -= 2) {
        c = over(times(square, plus(exactly(1), c)), exactly(i * (i - 1.0)));
        s = over(times(square, plus(exactly(1), s)), exactly(i * (i + 1.0)));
    }
    c = plus(exactly(1), c), s = times(r, plus(exactly(1), s));
    Pair found[4] = {c, negative(s), negative(c), s}; /* cos of r + quarter * pi / 2 */
    int quarter = (int)((int64_t)n & 3);
    for (int i = 0; i < 2; i++) { /* sin is cos a quarter before */
        Pair y = times(found[(quarter + 3 * i) & 3], exactly(factor));
        uint64_t bits = wide_bits(y.hi); /* to odd, then once to float32 */
        if (y.lo != 0 && !(bits & 1)) bits = (y.lo > 0) == (y.hi > 0) ? bits + 1 : bits - 1;
        out[i] = (float)double_of(bits);
    }
}

/* ---- GGUF: metadata and tensors (page: gguf.md) ----------------------------------------------------------------- */

typedef enum {
    F32 = 0, F16 = 1, Q4_0 = 2, Q5_0 = 6, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30, MXFP4 = 39
} Format;

static const struct {
    Format format;
    int elements, bytes; /* of a block */
} FORMATS[] = {{F32, 1, 4},    {F16, 1, 2},      {BF16, 1, 2},     {Q4_0, 32, 18},   {Q5_0, 32, 22},
               {Q8_0, 32, 34}, {Q4_K, 256, 144}, {Q5_K, 256, 176}, {Q6_K, 256, 210}, {MXFP4, 32, 17}};

enum { N_FORMATS = sizeof FORMATS / sizeof *FORMATS };

typedef struct {
    const char *name;
    Format format;
    int64_t shape[4]; /* elements of a row, rows, matrices */
    int n_dims;
    int64_t n_rows;
    size_t row_bytes;
    const uint8_t *at;
    bool read;
} Tensor;

typedef struct {
    const char *name;
    uint32_t type; /* of the value, or of an array's elements */
    uint64_t count;
    bool array;
    const uint8_t *at;
} Key;

typedef struct {
    Bytes file;
    Digest digest;
    Key *keys;
    uint64_t n_keys;
    Tensor *tensors;
    uint64_t n_tensors;
    const char *architecture;
} Gguf;

enum { T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_TEXT, T_ARRAY, T_U64, T_I64, T_F64 };

static const uint8_t VALUE_BYTES[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static const uint8_t *take(Reader *r, uint64_t n) {
    const uint8_t *at = r->at;
    if ((uint64_t)(r->end - r->at) < n) fail("the file is cut: its header goes beyond its end");
    r->at += n;
    return at;
}

static char *take_text(Reader *r) {
    uint64_t n = u64_at(take(r, 8));
    const uint8_t *at = take(r, n);
    char *text = allocate((size_t)n + 1, 1);
    memcpy(text, at, (size_t)n);
    return text;
}

static void skip_value(Reader *r, uint32_t type, int depth) {
    if (type > T_F64 || depth > 8) fail("a metadata value has type %u, which is unknown", type);
    if (type == T_TEXT) {
        take(r, u64_at(take(r, 8)));
    } else if (type == T_ARRAY) {
        uint32_t of = u32_at(take(r, 4));
        uint64_t n = u64_at(take(r, 8));
        if (of <= T_F64 && VALUE_BYTES[of]) {
            if (n > SIZE_MAX / 8) fail("a metadata array has %llu values", (unsigned long long)n);
            take(r, n * VALUE_BYTES[of]);
        } else {
            while (n--) skip_value(r, of, depth + 1);
        }
    } else {
        take(r, VALUE_BYTES[type]);
    }
}

static Key take_key(Reader *r) {
    Key key = {.name = take_text(r), .count = 1};
    key.type = u32_at(take(r, 4));
    const uint8_t *start = r->at;
    skip_value(r, key.type, 0);
    key.array = key.type == T_ARRAY;
    if (key.array) {
        key.type = u32_at(start);
        key.count = u64_at(start + 4);
        start += 12;
    }
    key.at = start;
    return key;
}

/* A key of the file, by its full name, or by its name behind that of the architecture. */
static const Key *key_of(const Gguf *g, const char *name) {
    bool whole = !strncmp(name, "general.", 8) || !strncmp(name, "split.", 6);
    size_t prefix = whole ? 0 : strlen(g->architecture) + 1;
    for (uint64_t i = 0; i < g->n_keys; i++) {
        const char *full = g->keys[i].name;
        if (whole ? !strcmp(full, name)
                  : !strncmp(full, g->architecture, prefix - 1) && full[prefix - 1] == '.' &&
                        !strcmp(full + prefix, name))
            return g->keys + i;
    }
    return NULL;
}

static double value_at(const Key *key, uint64_t i) {
    const uint8_t *p = key->at + i * VALUE_BYTES[key->type];
    uint64_t wide;
    switch (key->type) {
        case T_U8:
        case T_BOOL: return p[0];
        case T_I8: return (int8_t)p[0];
        case T_U16: return u16_at(p);
        case T_I16: return (int16_t)u16_at(p);
        case T_U32: return u32_at(p);
        case T_I32: return (int32_t)u32_at(p);
        case T_F32: return float_of(u32_at(p));
        case T_U64: return (double)u64_at(p);
        case T_I64: return (double)(int64_t)u64_at(p);
        case T_F64: wide = u64_at(p); return double_of(wide);
        default: fail("%s is no number", key->name);
    }
}

/* A number of the architecture. Where the file has one for each layer, all must be the same. */
static double number(const Gguf *g, const char *name, double missing) {
    const Key *key = key_of(g, name);
    if (key == NULL && missing != missing) fail("the file has no %s.%s", g->architecture, name);
    if (key == NULL) return missing;
    if (key->count == 0) fail("%s is empty", key->name);
    double value = value_at(key, 0);
    for (uint64_t i = 1; i < key->count; i++) {
        if (value_at(key, i) != value) fail("%s differs from layer to layer, which is not known here", key->name);
    }
    if (value - value != 0) fail("%s is not finite", key->name);
    return value;
}

static int integer(const Gguf *g, const char *name, double missing) {
    double value = number(g, name, missing);
    if (!(value >= 0 && value <= 1 << 24 && value == (int)value))
        fail("%s is %g, it must be an integer from 0 to 2^24", name, value);
    return (int)value;
}

static const char *text_key(const Gguf *g, const char *name, const char *missing) {
    const Key *key = key_of(g, name);
    if (key == NULL) return missing;
    if (key->type != T_TEXT || key->array) fail("%s is no text", key->name);
    Reader r = {key->at, g->file.at + g->file.size};
    return take_text(&r);
}

static void check_tensor(const Gguf *g, Tensor *t, uint64_t offset, const uint8_t *data) {
    int known = -1;
    uint64_t rows = 1;
    for (int i = 0; i < N_FORMATS; i++) known = FORMATS[i].format == t->format ? i : known;
    if (known < 0) fail("tensor %s has type %d, which is not known here", t->name, (int)t->format);
    if (t->shape[0] % FORMATS[known].elements)
        fail("tensor %s: rows of %lld are no whole blocks", t->name, (long long)t->shape[0]);
    for (int i = 1; i < t->n_dims; i++) rows *= (uint64_t)t->shape[i];
    t->n_rows = (int64_t)rows;
    t->row_bytes = (size_t)(t->shape[0] / FORMATS[known].elements) * (size_t)FORMATS[known].bytes;
    uint64_t left = (uint64_t)(g->file.at + g->file.size - data);
    if (offset > left || (t->row_bytes && rows > (left - offset) / t->row_bytes))
        fail("the file is cut: tensor %s goes beyond its end", t->name);
    t->at = data + offset;
}

static Gguf open_gguf(const char *path) {
    Gguf g = {.file = read_file(path)};
    Reader r = {g.file.at, g.file.at + g.file.size};
    if (g.file.size < 24 || memcmp(take(&r, 4), "GGUF", 4)) fail("it is no GGUF file");
    uint32_t version = u32_at(take(&r, 4));
    if (version != 2 && version != 3) fail("it is GGUF version %u; 2 and 3 are known here", version);
    g.n_tensors = u64_at(take(&r, 8));
    g.n_keys = u64_at(take(&r, 8));
    if (g.n_tensors > 65536 || g.n_keys > 65536)
        fail(
            "it says that it has %llu tensors and %llu keys; up to 65536 are read", (unsigned long long)g.n_tensors,
            (unsigned long long)g.n_keys
        );
    g.keys = allocate((size_t)g.n_keys, sizeof *g.keys);
    for (uint64_t i = 0; i < g.n_keys; i++) g.keys[i] = take_key(&r);
    g.architecture = text_key(&g, "general.architecture", NULL);
    if (g.architecture == NULL) fail("the file has no general.architecture");
    if (key_of(&g, "split.count") != NULL && integer(&g, "split.count", 0) > 1)
        fail("it is a part of a split model; only whole files are read");
    g.tensors = allocate((size_t)g.n_tensors, sizeof *g.tensors);
    uint64_t *offsets = allocate((size_t)g.n_tensors, sizeof *offsets);
    for (uint64_t i = 0; i < g.n_tensors; i++) {
        Tensor *t = g.tensors + i;
        t->name = take_text(&r);
        uint32_t n_dims = u32_at(take(&r, 4));
        if (n_dims < 1 || n_dims > 4) fail("tensor %s has %u dimensions", t->name, n_dims);
        t->n_dims = (int)n_dims;
        for (int d = 0; d < 4; d++) t->shape[d] = 1;
        for (uint32_t d = 0; d < n_dims; d++) {
            uint64_t n = u64_at(take(&r, 8));
            if (n < 1 || n > 1 << 30) fail("tensor %s has a side of %llu", t->name, (unsigned long long)n);
            t->shape[d] = (int64_t)n;
        }
        t->format = (Format)u32_at(take(&r, 4));
        offsets[i] = u64_at(take(&r, 8));
        for (uint64_t j = 0; j < i; j++) {
            if (!strcmp(g.tensors[j].name, t->name)) fail("tensor %s is there twice", t->name);
        }
    }
    uint32_t alignment = key_of(&g, "general.alignment") ? (uint32_t)integer(&g, "general.alignment", 32) : 32;
    if (alignment == 0 || alignment > 1 << 20) fail("general.alignment is %u", alignment);
    size_t head = (size_t)(r.at - g.file.at), start = (head + alignment - 1) / alignment * alignment;
    if (start > g.file.size) start = g.file.size;
    for (uint64_t i = 0; i < g.n_tensors; i++) check_tensor(&g, g.tensors + i, offsets[i], g.file.at + start);
    free(offsets);
    return g;
}

/* ---- Rows of tensors (page: "Matrix products", gguf.md: "Tensor types") ----------------------------------------- */

enum { GROUP = 32, LANES = 32, NORM_LANES = 256, SPLIT = 256 };

typedef struct {
    float d, dmin; /* scales of the block */
    int sc0, sc1;  /* of the group's halves; sc1 is used by Q6_K alone */
    int mn;
} Scales;

typedef struct {
    Format format;
    int64_t n;
    float *w;       /* float formats: the elements */
    int8_t *q;      /* others: their integers */
    Scales *scales; /* and each group's scales */
} Row;

static Row row_for(const Tensor *t) {
    Row row = {.format = t->format, .n = t->shape[0]};
    size_t n = (size_t)row.n;
    if (row.format == F32 || row.format == F16 || row.format == BF16) row.w = floats(n);
    else row.q = allocate(n, 1), row.scales = allocate(n / GROUP, sizeof *row.scales);
    return row;
}

static void free_row(Row *row) { free(row->w), free(row->q), free(row->scales); }

static void decode_32(Format format, const uint8_t *b, int8_t *q, Scales *s) {
    static const int8_t codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    *s = (Scales){.d = half_to_float(u16_at(b)), .sc0 = 1};
    if (format == Q8_0) {
        for (int i = 0; i < 32; i++) q[i] = (int8_t)b[2 + i];
    } else if (format == MXFP4) {
        s->d = float_of(b[0] < 2 ? 0x200000u << b[0] : (uint32_t)(b[0] - 1) << 23); /* 2^(e - 128) */
        for (int i = 0; i < 16; i++) q[i] = codes[b[1 + i] & 15], q[i + 16] = codes[b[1 + i] >> 4];
    } else if (format == Q4_0) {
        for (int i = 0; i < 16; i++) q[i] = (int8_t)((b[2 + i] & 15) - 8), q[i + 16] = (int8_t)((b[2 + i] >> 4) - 8);
    } else {
        uint32_t fifth = u32_at(b + 2);
        for (int i = 0; i < 16; i++) {
            q[i] = (int8_t)(((b[6 + i] & 15) | (fifth >> i & 1) << 4) - 16);
            q[i + 16] = (int8_t)((b[6 + i] >> 4 | (fifth >> (i + 16) & 1) << 4) - 16);
        }
    }
}

static void decode_256(Format format, const uint8_t *b, int8_t *q, Scales *s) {
    if (format == Q6_K) {
        const int8_t *sc = (const int8_t *)b + 192;
        float d = half_to_float(u16_at(b + 208));
        for (int g = 0; g < 8; g++) {
            const uint8_t *low = b + g / 4 * 64 + g % 2 * 32, *high = b + 128 + g / 4 * 32;
            int k = g % 4;
            s[g] = (Scales){.d = d, .sc0 = sc[2 * g], .sc1 = sc[2 * g + 1]};
            for (int e = 0; e < 32; e++) {
                int four = k < 2 ? low[e] & 15 : low[e] >> 4;
                q[32 * g + e] = (int8_t)((four | (high[e] >> (2 * k) & 3) << 4) - 32);
            }
        }
        return;
    }
    const uint8_t *small = b + 4, *four = b + (format == Q5_K ? 48 : 16);
    for (int g = 0; g < 8; g++) {
        s[g] = (Scales){.d = half_to_float(u16_at(b)), .dmin = half_to_float(u16_at(b + 2))};
        if (g < 4) s[g].sc0 = small[g] & 63, s[g].mn = small[g + 4] & 63;
        else {
            s[g].sc0 = (small[g + 4] & 15) | small[g - 4] >> 6 << 4;
            s[g].mn = small[g + 4] >> 4 | small[g] >> 6 << 4;
        }
        for (int e = 0; e < 32; e++) {
            uint8_t both = four[g / 2 * 32 + e];
            int value = g % 2 ? both >> 4 : both & 15;
            if (format == Q5_K) value |= (b[16 + e] >> g & 1) << 4;
            q[32 * g + e] = (int8_t)value;
        }
    }
}

static void decode(const Tensor *t, int64_t index, Row *row) {
    const uint8_t *p = t->at + (size_t)index * t->row_bytes;
    for (int64_t i = 0; i < row->n;) {
        switch (row->format) {
            case F32: row->w[i] = float_of(u32_at(p + 4 * i)), i++; break;
            case F16: row->w[i] = half_to_float(u16_at(p + 2 * i)), i++; break;
            case BF16: row->w[i] = float_of((uint32_t)u16_at(p + 2 * i) << 16), i++; break;
            case Q4_K: decode_256(Q4_K, p + i / 256 * 144, row->q + i, row->scales + i / GROUP), i += 256; break;
            case Q5_K: decode_256(Q5_K, p + i / 256 * 176, row->q + i, row->scales + i / GROUP), i += 256; break;
            case Q6_K: decode_256(Q6_K, p + i / 256 * 210, row->q + i, row->scales + i / GROUP), i += 256; break;
            case Q8_0: decode_32(Q8_0, p + i / 32 * 34, row->q + i, row->scales + i / GROUP), i += 32; break;
            case Q5_0: decode_32(Q5_0, p + i / 32 * 22, row->q + i, row->scales + i / GROUP), i += 32; break;
            case Q4_0: decode_32(Q4_0, p + i / 32 * 18, row->q + i, row->scales + i / GROUP), i += 32; break;
            case MXFP4: decode_32(MXFP4, p + i / 32 * 17, row->q + i, row->scales + i / GROUP), i += 32; break;
        }
    }
}

/* The numbers that a row stands for (page: "Embedding"). */
static void dequantized(const Row *row, float *out) {
    for (int64_t i = 0; i < row->n; i++) {
        if (row->w != NULL) {
            out[i] = row->w[i];
            continue;
        }
        const Scales *s = row->scales + i / GROUP;
        float q = row->q[i];
        switch (row->format) {
            case Q4_K:
            case Q5_K: out[i] = (s->d * (float)s->sc0) * q - s->dmin * (float)s->mn; break;
            case Q6_K: out[i] = (s->d * (float)(i % GROUP < 16 ? s->sc0 : s->sc1)) * q; break;
            default: out[i] = s->d * q;
        }
    }
}

typedef struct {
    int8_t *q;
    float *d;
    int *s;
} Quantized; /* rows of activations: integers, and for each group scale and sum */

static void quantize(const float *x, int64_t n, int8_t *q, float *d, int *s) {
    for (int64_t g = 0; g < n / GROUP; g++, x += GROUP, q += GROUP) {
        float most = 0;
        for (int i = 0; i < GROUP; i++) most = larger(most, magnitude(x[i]));
        float scale = most / 127.0f;
        if (scale < 0x1p-126f) scale = 0;
        bool usable = scale > 0 && scale < INFINITY;
        float inverse = usable ? 1.0f / scale : 0;
        d[g] = scale;
        s[g] = 0;
        for (int i = 0; i < GROUP; i++) {
            q[i] = usable ? (int8_t)rounded(x[i] * inverse) : 0;
            s[g] += q[i];
        }
    }
}

static int integer_product(const int8_t *a, const int8_t *b, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static float group_product(const Row *row, int64_t g, const int8_t *q, float dx, int s) {
    const Scales *c = row->scales + g;
    const int8_t *w = row->q + g * GROUP;
    if (row->format == Q6_K) {
        int first = integer_product(w, q, 16), second = integer_product(w + 16, q + 16, 16);
        return (c->d * dx) * (float)(c->sc0 * first + c->sc1 * second);
    }
    int sum = integer_product(w, q, GROUP);
    if (row->format == Q4_K || row->format == Q5_K) {
        return (c->d * dx) * (float)(c->sc0 * sum) - (c->dmin * dx) * (float)(c->mn * s);
    }
    return (c->d * dx) * (float)sum;
}

static float float_group(const float *w, const float *x, int64_t n) {
    float acc = 0;
    for (int64_t i = 0; i < n; i++) acc = fma32(w[i], x[i], acc);
    return acc;
}

/* y[row][n_out] = rows first ... first + n_out - 1 of a tensor, times each of n rows of x. */
static void product(const Tensor *t, int64_t first, int n_out, const float *x, int n, float *y) {
    int64_t width = t->shape[0], groups = (width + GROUP - 1) / GROUP;
    Row row = row_for(t);
    Quantized a = {NULL, NULL, NULL};
    if (row.q != NULL) {
        a.q = allocate((size_t)(n * width), 1);
        a.d = floats((size_t)(n * groups));
        a.s = allocate((size_t)(n * groups), sizeof *a.s);
        for (int i = 0; i < n; i++) quantize(x + i * width, width, a.q + i * width, a.d + i * groups, a.s + i * groups);
    }
    for (int r = 0; r < n_out; r++) {
        decode(t, first + r, &row);
        for (int i = 0; i < n; i++) {
            float lanes[LANES] = {0};
            for (int64_t g = 0; g < groups; g++) {
                int64_t at = g * GROUP, left = width - at < GROUP ? width - at : GROUP;
                lanes[g % LANES] +=
                    row.w != NULL
                        ? float_group(row.w + at, x + i * width + at, left)
                        : group_product(&row, g, a.q + i * width + at, a.d[i * groups + g], a.s[i * groups + g]);
            }
            y[(int64_t)i * n_out + r] = fold(lanes, LANES);
        }
    }
    free(a.q), free(a.d), free(a.s);
    free_row(&row);
}

/* ---- Models (page: "Models") ------------------------------------------------------------------------------------ */

typedef struct {
    const char *name;
    bool neighbours;  /* pairs of the rotation are neighbours, else halves */
    bool head_norm;   /* query and key heads are normed */
    bool plain;       /* a dense decoder: with a window, a factor of scores and biases where the file has them */
    bool mixture;     /* a decoder with experts */
    bool normalise;   /* the weights of the chosen experts sum to 1 */
    bool hybrid;      /* layers of a delta net, and of attention with a gate */
    bool block_pairs; /* value head h uses key head h / (Hv / Hk), else h % Hk */
} Family;

static const Family FAMILIES[] = {
    {.name = "llama", .neighbours = true, .plain = true},
    {.name = "qwen2", .plain = true},
    {.name = "qwen3", .plain = true, .head_norm = true},
    {.name = "qwen2moe", .mixture = true},
    {.name = "qwen3moe", .mixture = true, .head_norm = true, .normalise = true},
    {.name = "qwen35", .hybrid = true, .head_norm = true, .normalise = true},
    {.name = "qwen35moe", .hybrid = true, .head_norm = true, .normalise = true},
    {.name = "qwen3next", .hybrid = true, .head_norm = true, .normalise = true, .block_pairs = true},
};

enum { N_FAMILIES = sizeof FAMILIES / sizeof *FAMILIES };

typedef struct {
    bool delta, experts;
    float *k, *v; /* what the cache holds: [position][kv head][dim] */
    int8_t *k_q;  /* of a cache of Q8_0: integers and scales of the keys */
    float *k_d;
    float *inputs, *state; /* of a delta net: the last inputs of the convolution, S[head][key][value] */
} Layer;

typedef struct {
    Gguf g;
    const Family *family;
    int n_layers, n_embd, n_vocab, n_heads, n_kv, head_dim, value_dim, window;
    float eps, score_factor;
    int rope_dim;
    double *frequencies, rope_factor;
    int n_experts, n_used, n_groups, n_groups_used, n_dense;
    float expert_factor;
    int k_heads, v_heads, delta_dim, taps;
    Tensor *head;
    Layer *layers;
    int n_positions;
    bool q8_cache;
} Model;

static Tensor *tensor(Gguf *g, int layer, const char *name) {
    char full[128];
    if (layer >= 0) snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        if (!strcmp(g->tensors[i].name, layer >= 0 ? full : name)) {
            g->tensors[i].read = true;
            return g->tensors + i;
        }
    }
    return NULL;
}

/* A tensor that has to be there: rows of so many elements. */
static Tensor *needed(Gguf *g, int layer, const char *name, int64_t n_rows, int64_t n_in) {
    Tensor *t = tensor(g, layer, name);
    if (t == NULL) fail("tensor %s of layer %d is missing", name, layer);
    if (t->n_rows != n_rows || t->shape[0] != n_in) {
        fail(
            "tensor %s has %lld rows of %lld, not %lld of %lld", t->name, (long long)t->n_rows, (long long)t->shape[0],
            (long long)n_rows, (long long)n_in
        );
    }
    return t;
}

/* A vector as float32. Free it. */
static float *vector(Gguf *g, int layer, const char *name, int64_t n) {
    Tensor *t = needed(g, layer, name, 1, n);
    Row row = row_for(t);
    float *out = floats((size_t)n);
    if (row.w == NULL) fail("tensor %s is quantised, which is not known here", t->name);
    decode(t, 0, &row);
    memcpy(out, row.w, (size_t)n * sizeof *out);
    free_row(&row);
    return out;
}

/* Page: "Tables". */
static void read_rotation(Model *m) {
    Gguf *g = &m->g;
    int dim = m->rope_dim = integer(g, "rope.dimension_count", m->head_dim), pairs = dim / 2;
    const char *scaling = text_key(g, "rope.scaling.type", "linear");
    bool yarn = !strcmp(scaling, "yarn"), linear = !strcmp(scaling, "linear");
    if (dim % 2 || dim > m->head_dim) fail("rope.dimension_count is %d, heads have %d elements", dim, m->head_dim);
    if (!yarn && !linear && strcmp(scaling, "none")) fail("rope.scaling.type is %s, which is not known here", scaling);
    double base = number(g, "rope.freq_base", 10000), alpha = number(g, "rope.scaling.alpha", 0);
    double factor = yarn || linear ? number(g, "rope.scaling.factor", number(g, "rope.scale_linear", 1)) : 1;
    if (!(base > 1) || !(factor > 0)) fail("rope.freq_base is %g and the scaling's factor %g", base, factor);
    if (alpha > 0) base *= nearest_power(alpha, m->head_dim / (m->head_dim > 3 ? m->head_dim - 2.0 : 1.0));
    m->rope_factor = number(g, "rope.scaling.attn_factor", 1);
    m->frequencies = allocate((size_t)pairs, sizeof(double));
    float *factors =
        !m->family->hybrid && tensor(g, -1, "rope_freqs.weight") ? vector(g, -1, "rope_freqs.weight", pairs) : NULL;
    double low = 0, high = 0;
    if (yarn) {
        double context = integer(g, "rope.scaling.original_context_length", integer(g, "context_length", NAN)), ends[2];
        ends[0] = number(g, "rope.scaling.yarn_beta_fast", 32), ends[1] = number(g, "rope.scaling.yarn_beta_slow", 1);
        for (int i = 0; i < 2; i++)
            ends[i] = dim * nearest_log(context / (ends[i] * 2 * 3.141592653589793)) / (2 * nearest_log(base));
        low = (double)(int64_t)ends[0], low -= low > ends[0], low = low > 0 ? low : 0;                   /* floor */
        high = (double)(int64_t)ends[1], high += high < ends[1], high = high < dim - 1 ? high : dim - 1; /* ceiling */
        double log = 0.1 * nearest_log(factor);
        m->rope_factor = m->rope_factor * (1 + log) / (1 + number(g, "rope.scaling.yarn_log_multiplier", 0) * log);
    }
    for (int i = 0; i < pairs; i++) {
        double freq = nearest_power(base, -(2.0 * i) / dim);
        if (factors != NULL) freq = freq / factors[i];
        if (yarn) {
            double width = high - low > 0.001 ? high - low : 0.001, ramp = (i - low) / width;
            double keep = 1 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp);
            freq = freq / factor * (1 - keep) + freq * keep;
        } else {
            freq = freq / factor;
        }
        m->frequencies[i] = freq;
    }
    free(factors);
}

static bool is_delta(const Model *m, int layer) {
    const Key *key = key_of(&m->g, "attention.recurrent_layers");
    if (!m->family->hybrid) return false;
    if (key != NULL) {
        if (key->count <= (uint64_t)layer) fail("%s has %llu values", key->name, (unsigned long long)key->count);
        return value_at(key, (uint64_t)layer) != 0;
    }
    int interval = integer(&m->g, "full_attention_interval", 4);
    return interval == 0 || (layer + 1) % interval != 0;
}

static void read_sizes(Model *m) {
    Gguf *g = &m->g;
    Tensor *embedding = tensor(g, -1, "token_embd.weight");
    if (embedding == NULL) fail("tensor token_embd.weight is missing");
    m->n_embd = integer(g, "embedding_length", NAN);
    m->n_vocab = (int)embedding->n_rows;
    if (embedding->shape[0] != m->n_embd)
        fail("token_embd.weight has rows of %lld, embedding_length is %d", (long long)embedding->shape[0], m->n_embd);
    m->n_layers = integer(g, "block_count", NAN) - integer(g, "nextn_predict_layers", 0);
    m->n_heads = integer(g, "attention.head_count", NAN);
    m->n_kv = integer(g, "attention.head_count_kv", m->n_heads);
    if (m->n_layers < 1 || m->n_heads < 1 || m->n_kv < 1 || m->n_heads % m->n_kv)
        fail("it has %d layers, %d heads, %d of keys", m->n_layers, m->n_heads, m->n_kv);
    m->head_dim = integer(g, "attention.key_length", m->n_embd / m->n_heads);
    m->value_dim = integer(g, "attention.value_length", m->head_dim);
    if (m->head_dim < 1 || m->value_dim < 1) fail("heads have %d and %d elements", m->head_dim, m->value_dim);
    m->eps = (float)number(g, "attention.layer_norm_rms_epsilon", NAN);
    m->window = m->family->plain && m->family->neighbours ? integer(g, "attention.sliding_window", 0) : 0;
    double scale = m->family->plain ? number(g, "attention.scale", 0) : 0;
    m->score_factor = scale != 0 ? (float)scale : (float)(1 / sqrt(m->head_dim));
}

static void read_experts(Model *m) {
    Gguf *g = &m->g;
    m->n_experts = integer(g, "expert_count", 0);
    if (m->family->plain && m->n_experts) fail("it has experts, which %s files have not here", m->family->name);
    if (m->family->mixture && !m->n_experts) fail("it has no experts");
    if (!m->n_experts) return;
    m->n_used = integer(g, "expert_used_count", NAN);
    m->n_dense = m->family->mixture ? integer(g, "leading_dense_block_count", 0) : 0;
    m->n_groups = integer(g, "expert_group_count", 0), m->n_groups += m->n_groups == 0;
    m->n_groups_used = integer(g, "expert_group_used_count", 0),
    m->n_groups_used += m->n_groups == 1 && !m->n_groups_used;
    double factor = m->family->normalise ? number(g, "expert_weights_scale", 0) : 0;
    m->expert_factor = factor != 0 ? (float)factor : 1;
    if (m->n_used < 1 || m->n_used > m->n_experts || m->n_experts % m->n_groups || m->n_groups_used < 1 ||
        m->n_groups_used > m->n_groups || m->n_used > m->n_experts / m->n_groups * m->n_groups_used) {
        fail(
            "%d of %d experts from %d of %d groups are not possible", m->n_used, m->n_experts, m->n_groups_used,
            m->n_groups
        );
    }
}

static void read_delta(Model *m) {
    Gguf *g = &m->g;
    if (!m->family->hybrid) return;
    m->delta_dim = integer(g, "ssm.state_size", NAN), m->taps = integer(g, "ssm.conv_kernel", NAN);
    m->k_heads = integer(g, "ssm.group_count", NAN), m->v_heads = integer(g, "ssm.time_step_rank", NAN);
    if (m->delta_dim < 1 || m->taps < 2 || m->k_heads < 1 || m->v_heads < 1 || m->v_heads % m->k_heads ||
        integer(g, "ssm.inner_size", NAN) != m->delta_dim * m->v_heads) {
        fail("the sizes of the delta net do not fit each other");
    }
}

static Model open_model(const char *path) {
    Model m = {.g = open_gguf(path)};
    for (int i = 0; i < N_FAMILIES; i++) {
        if (!strcmp(FAMILIES[i].name, m.g.architecture)) m.family = FAMILIES + i;
    }
    if (m.family == NULL) fail("architecture %s is not known here", m.g.architecture);
    read_sizes(&m);
    read_rotation(&m);
    read_experts(&m);
    read_delta(&m);
    m.head = tensor(&m.g, -1, "output.weight");
    if (m.head == NULL) m.head = tensor(&m.g, -1, "token_embd.weight");
    if (m.head->n_rows != m.n_vocab || m.head->shape[0] != m.n_embd)
        fail("the head %s does not fit the embedding", m.head->name);
    m.layers = allocate((size_t)m.n_layers, sizeof *m.layers);
    for (int i = 0; i < m.n_layers; i++) {
        m.layers[i].delta = is_delta(&m, i);
        m.layers[i].experts = m.n_experts && i >= m.n_dense;
    }
    return m;
}

/* Memory of one sequence of so many positions, all +0. */
static void begin_sequence(Model *m, int n_positions, bool q8_cache) {
    m->n_positions = n_positions;
    m->q8_cache = q8_cache;
    if (q8_cache && (m->head_dim % GROUP || m->value_dim % GROUP))
        fail("heads of %d and %d elements are no whole blocks of Q8_0", m->head_dim, m->value_dim);
    for (int i = 0; i < m->n_layers; i++) {
        Layer *l = m->layers + i;
        size_t keys = (size_t)n_positions * (size_t)(m->n_kv * m->head_dim);
        free(l->k), free(l->v), free(l->k_q), free(l->k_d), free(l->inputs), free(l->state);
        l->k = l->v = l->k_d = l->inputs = l->state = NULL, l->k_q = NULL;
        if (l->delta) {
            l->inputs = floats((size_t)((m->taps - 1) * (2 * m->k_heads + m->v_heads) * m->delta_dim));
            l->state = floats((size_t)m->v_heads * (size_t)(m->delta_dim * m->delta_dim));
            continue;
        }
        l->v = floats((size_t)n_positions * (size_t)(m->n_kv * m->value_dim));
        if (q8_cache) l->k_q = allocate(keys, 1), l->k_d = floats(keys / GROUP);
        else l->k = floats(keys);
    }
}

/* Page: "RMS norm". Rows of n elements, by a weight of n elements or none; y may be x. */
static void rms_norm(const float *x, const float *w, int64_t rows, int n, float eps, float *y) {
    for (int64_t r = 0; r < rows; r++, x += n, y += n) {
        float lanes[NORM_LANES] = {0};
        for (int i = 0; i < n; i++) lanes[i % NORM_LANES] = fma32(x[i], x[i], lanes[i % NORM_LANES]);
        float scale = 1.0f / root(fold(lanes, NORM_LANES) / (float)n + eps);
        for (int i = 0; i < n; i++) {
            float z = x[i] * scale;
            y[i] = w != NULL ? z * w[i] : z;
        }
    }
}

static void norm_by(Model *m, int layer, const char *name, const float *x, int64_t rows, int n, float *y) {
    float *w = vector(&m->g, layer, name, n);
    rms_norm(x, w, rows, n, m->eps, y);
    free(w);
}

/* A product with blk.LAYER.NAME.weight, and its bias where the file has one. Free the result. */
static float *project(Model *m, int layer, const char *name, const float *x, int n, int n_in, int n_out) {
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    Tensor *t = needed(&m->g, layer, full, n_out, n_in);
    float *y = floats((size_t)n * (size_t)n_out);
    product(t, 0, n_out, x, n, y);
    snprintf(full, sizeof full, "%s.bias", name);
    if (!m->family->hybrid && tensor(&m->g, layer, full) != NULL) {
        float *bias = vector(&m->g, layer, full, n_out);
        for (int i = 0; i < n * n_out; i++) y[i] = y[i] + bias[i % n_out];
        free(bias);
    }
    return y;
}

static void rotate(const Model *m, float *x, int heads, const float *turns) {
    int pairs = m->rope_dim / 2;
    for (int h = 0; h < heads; h++, x += m->head_dim) {
        for (int i = 0; i < pairs; i++) {
            float *a = m->family->neighbours ? x + 2 * i : x + i, *b = m->family->neighbours ? a + 1 : a + pairs;
            float cos = turns[2 * i], sin = turns[2 * i + 1], p = *a, q = *b;
            *a = (p * cos) - (q * sin);
            *b = (p * sin) + (q * cos);
        }
    }
}

/* Page: "A cache of Q8_0": blocks of a row; the scale is d_x rounded to float16. */
static void cache_blocks(const float *x, int n, int8_t *q, float *d) {
    int *sums = allocate((size_t)(n / GROUP), sizeof *sums);
    quantize(x, n, q, d, sums);
    free(sums);
    for (int g = 0; g < n / GROUP; g++) {
        d[g] = half_rounded(d[g]);
        if (!(d[g] > 0 && d[g] < INFINITY)) memset(q + g * GROUP, 0, GROUP);
    }
}

static void write_cache(const Model *m, Layer *l, int position, const float *k, const float *v) {
    int keys = m->n_kv * m->head_dim, values = m->n_kv * m->value_dim;
    float *to = l->v + (int64_t)position * values;
    if (!m->q8_cache) {
        for (int i = 0; i < keys; i++) l->k[(int64_t)position * keys + i] = half_rounded(k[i]);
        for (int i = 0; i < values; i++) to[i] = half_rounded(v[i]);
        return;
    }
    cache_blocks(k, keys, l->k_q + (int64_t)position * keys, l->k_d + (int64_t)position * keys / GROUP);
    int8_t *q = allocate((size_t)values, 1);
    float *d = floats((size_t)(values / GROUP));
    cache_blocks(v, values, q, d);
    for (int i = 0; i < values; i++) to[i] = d[i / GROUP] * (float)q[i];
    free(q), free(d);
}

/* Scores of one query head and the keys of positions first ... last - 1. */
static void score(const Model *m, const Layer *l, const float *q, int kv, int first, int last, float *scores) {
    int dim = m->head_dim, groups = dim / GROUP, sums[32];
    int8_t integers[1024];
    float d[32];
    if (m->q8_cache) quantize(q, dim, integers, d, sums);
    for (int t = first; t < last; t++) {
        int64_t head = (int64_t)t * m->n_kv + kv;
        float acc = 0;
        if (m->q8_cache) {
            for (int g = 0; g < groups; g++) {
                int sum = integer_product(l->k_q + head * dim + g * GROUP, integers + g * GROUP, GROUP);
                acc = acc + (l->k_d[head * groups + g] * d[g]) * (float)sum;
            }
        } else {
            for (int i = 0; i < dim; i++) acc = fma32(q[i], l->k[head * dim + i], acc);
        }
        scores[t - first] = acc * m->score_factor;
    }
}

/* Page: "Attention". One row of one head at a position; o and part: float[value_dim]. */
static void attend(const Model *m, const Layer *l, const float *q, int kv, int position, float *o, float *part) {
    int lowest = m->window && position >= m->window ? position - m->window + 1 : 0, dim = m->value_dim;
    float top = 0, total = 0, scores[SPLIT];
    for (int split = lowest / SPLIT; split <= position / SPLIT; split++) {
        int first = split * SPLIT > lowest ? split * SPLIT : lowest;
        int last = (split + 1) * SPLIT < position + 1 ? (split + 1) * SPLIT : position + 1;
        float lanes[LANES] = {0};
        score(m, l, q, kv, first, last, scores);
        float most = scores[0];
        for (int t = 1; t < last - first; t++) most = larger(most, scores[t]);
        bool begins = split == lowest / SPLIT;
        float *to = begins ? o : part;
        memset(to, 0, (size_t)dim * sizeof *to);
        for (int t = first; t < last; t++) {
            float e = exp32(scores[t - first] - most);
            const float *v = l->v + ((int64_t)t * m->n_kv + kv) * dim;
            lanes[t % LANES] = lanes[t % LANES] + e;
            for (int i = 0; i < dim; i++) to[i] = fma32(e, v[i], to[i]);
        }
        float sum = fold(lanes, LANES);
        if (begins) {
            top = most, total = sum;
            continue;
        }
        float both = larger(top, most), a = exp32(top - both), b = exp32(most - both);
        total = (total * a) + (sum * b);
        for (int i = 0; i < dim; i++) o[i] = (o[i] * a) + (part[i] * b);
        top = both;
    }
    for (int i = 0; i < dim; i++) o[i] = o[i] / total;
}

/* Queries (with the gates of hybrids, float[n][q_width]), keys, values from rows h. */
static void queries_keys_values(
    Model *m, int layer, const float *h, int n, int q_width, float **q, float **k, float **v
) {
    int kw = m->n_kv * m->head_dim, vw = m->n_kv * m->value_dim, all = q_width + kw + vw;
    if (tensor(&m->g, layer, "attn_qkv.weight") == NULL) {
        *q = project(m, layer, "attn_q", h, n, m->n_embd, q_width);
        *k = project(m, layer, "attn_k", h, n, m->n_embd, kw);
        *v = project(m, layer, "attn_v", h, n, m->n_embd, vw);
        return;
    }
    float *whole = project(m, layer, "attn_qkv", h, n, m->n_embd, all);
    *q = floats((size_t)(n * q_width)), *k = floats((size_t)(n * kw)), *v = floats((size_t)(n * vw));
    for (int i = 0; i < n; i++) {
        memcpy(*q + i * q_width, whole + i * all, (size_t)q_width * sizeof **q);
        memcpy(*k + i * kw, whole + i * all + q_width, (size_t)kw * sizeof **k);
        memcpy(*v + i * vw, whole + i * all + q_width + kw, (size_t)vw * sizeof **v);
    }
    free(whole);
}

/* The attention of a layer over rows h of positions from start on: float[n][n_embd]. */
static float *attention(Model *m, int layer, const float *h, int n, int start, const float *turns) {
    Layer *l = m->layers + layer;
    int dim = m->head_dim, heads = m->n_heads, width = heads * dim, out_width = heads * m->value_dim;
    bool gated = m->family->hybrid;
    float *q, *k, *v, *gate = NULL, *part = floats((size_t)m->value_dim), *out = floats((size_t)(n * out_width));
    queries_keys_values(m, layer, h, n, gated ? 2 * width : width, &q, &k, &v);
    if (gated) { /* each head's query, then its gate */
        if (m->value_dim != dim) fail("values of %d elements with gates of %d are not known here", m->value_dim, dim);
        float *both = q;
        q = floats((size_t)(n * width)), gate = floats((size_t)(n * width));
        for (int i = 0; i < n * heads; i++) {
            memcpy(q + i * dim, both + 2 * i * dim, (size_t)dim * sizeof *q);
            memcpy(gate + i * dim, both + (2 * i + 1) * dim, (size_t)dim * sizeof *q);
        }
        free(both);
    }
    if (m->family->head_norm) {
        norm_by(m, layer, "attn_q_norm.weight", q, (int64_t)n * heads, dim, q);
        norm_by(m, layer, "attn_k_norm.weight", k, (int64_t)n * m->n_kv, dim, k);
    }
    for (int i = 0; i < n; i++) {
        rotate(m, q + i * width, heads, turns + i * m->rope_dim);
        rotate(m, k + i * m->n_kv * dim, m->n_kv, turns + i * m->rope_dim);
        write_cache(m, l, start + i, k + i * m->n_kv * dim, v + i * m->n_kv * m->value_dim);
    }
    for (int i = 0; i < n; i++) {
        for (int head = 0; head < heads; head++) {
            attend(
                m, l, q + i * width + head * dim, head / (heads / m->n_kv), start + i,
                out + i * out_width + head * m->value_dim, part
            );
        }
    }
    if (gated) {
        for (int i = 0; i < n * width; i++) out[i] = out[i] * sigmoid(gate[i]);
    }
    float *y = project(m, layer, "attn_output", out, n, out_width, m->n_embd);
    free(q), free(k), free(v), free(gate), free(part), free(out);
    return y;
}

/* Page: "Recurrent layers", convolution with silu; x: float[n][channels] becomes its output. */
static void convolve(Model *m, int layer, float *x, int n, int channels) {
    float *kept = m->layers[layer].inputs;
    int taps = m->taps;
    Tensor *t = needed(&m->g, layer, "ssm_conv1d.weight", channels, taps);
    Row row = row_for(t);
    if (row.w == NULL) fail("tensor %s is quantised, which is not known here", t->name);
    for (int c = 0; c < channels; c++) {
        decode(t, c, &row);
        for (int i = 0; i < n; i++) {
            float acc = 0, now = x[i * channels + c];
            for (int j = 0; j < taps - 1; j++) acc = fma32(row.w[j], kept[j * channels + c], acc);
            acc = fma32(row.w[taps - 1], now, acc);
            for (int j = 0; j < taps - 2; j++) kept[j * channels + c] = kept[(j + 1) * channels + c];
            kept[(taps - 2) * channels + c] = now;
            x[i * channels + c] = silu(acc);
        }
    }
    free_row(&row);
}

/* Each head of d elements times 1 / sqrt(its squares + eps), and then times a factor. */
static void unit_heads(float *x, int heads, int d, float eps, float factor) {
    for (int h = 0; h < heads; h++, x += d) {
        float lanes[NORM_LANES] = {0};
        for (int i = 0; i < d; i++) lanes[i % NORM_LANES] = fma32(x[i], x[i], lanes[i % NORM_LANES]);
        float scale = 1.0f / root(fold(lanes, NORM_LANES) + eps);
        for (int i = 0; i < d; i++) x[i] = (x[i] * scale) * factor;
    }
}

/* Page: "Gated delta rule". One row of one value head; s: S[key][value], work: float[d]. */
static void delta_rule(
    float *s, const float *q, const float *k, const float *v, float g, float b, int d, float *work, float *o
) {
    memset(work, 0, (size_t)d * sizeof *work);
    memset(o, 0, (size_t)d * sizeof *o);
    for (int i = 0; i < d; i++) {
        for (int e = 0; e < d; e++) {
            s[i * d + e] = g * s[i * d + e];
            work[e] = fma32(s[i * d + e], k[i], work[e]);
        }
    }
    for (int e = 0; e < d; e++) work[e] = b * (v[e] - work[e]);
    for (int i = 0; i < d; i++) {
        for (int e = 0; e < d; e++) {
            s[i * d + e] = fma32(k[i], work[e], s[i * d + e]);
            o[e] = fma32(s[i * d + e], q[i], o[e]);
        }
    }
}

/* What the convolution reads, float[n][2 Hk d + Hv d], and the output's gate, float[n][Hv d]. */
static void delta_inputs(Model *m, int layer, const float *h, int n, float **x, float **z) {
    int d = m->delta_dim, keys = m->k_heads * d, values = m->v_heads * d, channels = 2 * keys + values;
    if (tensor(&m->g, layer, "ssm_in.weight") == NULL) {
        *x = project(m, layer, "attn_qkv", h, n, m->n_embd, channels);
        *z = project(m, layer, "attn_gate", h, n, m->n_embd, values);
        return;
    }
    float *whole = project(m, layer, "ssm_in", h, n, m->n_embd, channels + values);
    int share = values / m->k_heads; /* of a key head: query, key, values, gates */
    *x = floats((size_t)(n * channels)), *z = floats((size_t)(n * values));
    for (int i = 0; i < n; i++) {
        for (int head = 0; head < m->k_heads; head++) {
            const float *from = whole + i * (channels + values) + head * (2 * d + 2 * share);
            float *to = *x + i * channels;
            memcpy(to + head * d, from, (size_t)d * sizeof *to);
            memcpy(to + keys + head * d, from + d, (size_t)d * sizeof *to);
            memcpy(to + 2 * keys + head * share, from + 2 * d, (size_t)share * sizeof *to);
            memcpy(*z + i * values + head * share, from + 2 * d + share, (size_t)share * sizeof *to);
        }
    }
    free(whole);
}

/* What decay and strength of each value head come from, float[n][Hv] each. */
static void delta_rates(Model *m, int layer, const float *h, int n, float **alpha, float **beta) {
    int heads = m->v_heads, share = heads / m->k_heads;
    if (tensor(&m->g, layer, "ssm_ba.weight") == NULL) {
        *alpha = project(m, layer, "ssm_alpha", h, n, m->n_embd, heads);
        *beta = project(m, layer, "ssm_beta", h, n, m->n_embd, heads);
        return;
    }
    float *both = project(m, layer, "ssm_ba", h, n, m->n_embd, 2 * heads);
    *alpha = floats((size_t)(n * heads)), *beta = floats((size_t)(n * heads));
    for (int i = 0; i < n * heads; i++) {
        int at = i / share * 2 * share + i % share; /* of a key head: strengths, then decays */
        (*beta)[i] = both[at], (*alpha)[i] = both[at + share];
    }
    free(both);
}

/* The delta net of a layer over rows h: float[n][n_embd]. */
static float *delta_net(Model *m, int layer, const float *h, int n) {
    int d = m->delta_dim, hv = m->v_heads, hk = m->k_heads, channels = (2 * hk + hv) * d;
    float *x, *z, *alpha, *beta;
    float *a = vector(&m->g, layer, "ssm_a", hv), *bias = vector(&m->g, layer, "ssm_dt.bias", hv);
    float *out = floats((size_t)(n * hv * d)), *work = floats((size_t)d);
    delta_inputs(m, layer, h, n, &x, &z);
    delta_rates(m, layer, h, n, &alpha, &beta);
    convolve(m, layer, x, n, channels);
    for (int i = 0; i < n; i++) {
        float *row = x + i * channels;
        unit_heads(row, hk, d, m->eps, (float)(1 / sqrt(d)));
        unit_heads(row + hk * d, hk, d, m->eps, 1);
        for (int head = 0; head < hv; head++) {
            int key = m->family->block_pairs ? head / (hv / hk) : head % hk;
            float g = exp32(a[head] * softplus(alpha[i * hv + head] + bias[head])), b = sigmoid(beta[i * hv + head]);
            delta_rule(
                m->layers[layer].state + (int64_t)head * d * d, row + key * d, row + (hk + key) * d,
                row + (2 * hk + head) * d, g, b, d, work, out + (i * hv + head) * d
            );
        }
    }
    norm_by(m, layer, "ssm_norm.weight", out, (int64_t)n * hv, d, out);
    for (int i = 0; i < n * hv * d; i++) out[i] = out[i] * silu(z[i]);
    float *y = project(m, layer, "ssm_out", out, n, hv * d, m->n_embd);
    free(x), free(z), free(alpha), free(beta), free(a), free(bias), free(out), free(work);
    return y;
}

static void swiglu(float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) gate[i] = silu(gate[i]) * up[i];
}

/* A dense feed-forward over rows h: float[n][n_embd]. end: "" or "_shexp". */
static float *feed_forward(Model *m, int layer, const float *h, int n, const char *end) {
    char gate_name[32], up_name[32], down_name[32], full[64];
    snprintf(gate_name, sizeof gate_name, "ffn_gate%s", end);
    snprintf(up_name, sizeof up_name, "ffn_up%s", end);
    snprintf(down_name, sizeof down_name, "ffn_down%s", end);
    snprintf(full, sizeof full, "%s.weight", down_name);
    Tensor *down = tensor(&m->g, layer, full);
    if (down == NULL) fail("tensor %s of layer %d is missing", full, layer);
    int width = (int)down->shape[0];
    snprintf(full, sizeof full, "%s.weight", gate_name);
    float *gate, *up;
    if (tensor(&m->g, layer, full) != NULL) {
        gate = project(m, layer, gate_name, h, n, m->n_embd, width);
        up = project(m, layer, up_name, h, n, m->n_embd, width);
    } else { /* rows of the gate, then those of up */
        float *both = project(m, layer, up_name, h, n, m->n_embd, 2 * width);
        gate = floats((size_t)n * (size_t)width), up = floats((size_t)n * (size_t)width);
        for (int64_t i = 0; i < (int64_t)n * width; i++) {
            int64_t at = i / width * 2 * width + i % width;
            gate[i] = both[at], up[i] = both[at + width];
        }
        free(both);
    }
    swiglu(gate, up, (int64_t)n * width);
    float *y = project(m, layer, down_name, gate, n, width, m->n_embd);
    free(gate), free(up);
    return y;
}

/* Page: "Softmax". */
static void softmax(float *x, int n) {
    float most = x[0], lanes[LANES] = {0};
    for (int i = 1; i < n; i++) most = larger(most, x[i]);
    for (int i = 0; i < n; i++) x[i] = exp32(x[i] - most), lanes[i % LANES] = lanes[i % LANES] + x[i];
    float sum = fold(lanes, LANES);
    for (int i = 0; i < n; i++) x[i] = x[i] / sum;
}

/* Marks the count largest of x among those not barred: ties to the lowest index, NaN smaller than every number. */
static void mark_largest(const float *x, const bool *barred, int n, int count, bool *marked) {
    for (int c = 0; c < count; c++) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if (marked[i] || (barred != NULL && barred[i])) continue;
            if (best < 0 || x[i] > x[best] || (x[best] != x[best] && x[i] == x[i])) best = i;
        }
        marked[best] = true;
    }
}

static void bar_groups(const Model *m, const float *choice, bool *barred) {
    int groups = m->n_groups, each = m->n_experts / groups;
    float *score = floats((size_t)groups);
    bool *used = allocate((size_t)groups, 1), *two = allocate((size_t)each, 1);
    for (int g = 0; g < groups; g++) {
        const float *x = choice + g * each;
        memset(two, 0, (size_t)each);
        mark_largest(x, NULL, each, 1, two);
        int first = 0, second = -1;
        while (!two[first]) first++;
        if (each > 1) {
            mark_largest(x, NULL, each, 1, two);
            for (int i = 0; i < each; i++) second = two[i] && i != first ? i : second;
        }
        score[g] = second < 0 ? x[first] : x[first] + x[second];
    }
    mark_largest(score, NULL, groups, m->n_groups_used, used);
    for (int i = 0; i < m->n_experts; i++) barred[i] = !used[i / each];
    free(score), free(used), free(two);
}

/* The experts of a row of logits: marks them, and leaves their weights in place of the logits. */
static void choose_experts(const Model *m, float *x, bool *chosen, bool *barred) {
    float sum = 0;
    memset(chosen, 0, (size_t)m->n_experts);
    memset(barred, 0, (size_t)m->n_experts);
    softmax(x, m->n_experts);
    if (m->n_groups_used < m->n_groups) bar_groups(m, x, barred);
    mark_largest(x, barred, m->n_experts, m->n_used, chosen);
    for (int e = 0; e < m->n_experts; e++) {
        if (chosen[e]) sum = sum + x[e];
    }
    for (int e = 0; e < m->n_experts; e++) {
        if (m->family->normalise) x[e] = x[e] / larger(sum, 0x1p-14f);
        x[e] = x[e] * m->expert_factor;
    }
}

/* Experts of a layer over rows h: float[n][n_embd] (page: "Mixture of experts"). */
static float *mixture(Model *m, int layer, const float *h, int n) {
    Gguf *g = &m->g;
    int experts = m->n_experts, n_embd = m->n_embd;
    Tensor *gates = tensor(g, layer, "ffn_gate_exps.weight"), *ups = tensor(g, layer, "ffn_up_exps.weight");
    Tensor *both = gates == NULL ? tensor(g, layer, "ffn_gate_up_exps.weight") : NULL,
           *downs = tensor(g, layer, "ffn_down_exps.weight");
    if (downs == NULL || (both == NULL && (gates == NULL || ups == NULL)))
        fail("experts of layer %d are missing", layer);
    int width = (int)downs->shape[0];
    if (both != NULL) both = needed(g, layer, "ffn_gate_up_exps.weight", 2ll * width * experts, n_embd);
    else
        needed(g, layer, "ffn_gate_exps.weight", (int64_t)width * experts, n_embd),
            needed(g, layer, "ffn_up_exps.weight", (int64_t)width * experts, n_embd);
    needed(g, layer, "ffn_down_exps.weight", (int64_t)n_embd * experts, width);
    float *weights = project(m, layer, "ffn_gate_inp", h, n, n_embd, experts), *y = floats((size_t)(n * n_embd));
    float *gate = floats((size_t)width), *up = floats((size_t)width), *down = floats((size_t)n_embd);
    bool *chosen = allocate((size_t)experts, 1), *barred = allocate((size_t)experts, 1);
    for (int i = 0; i < n; i++) {
        const float *x = h + i * n_embd;
        choose_experts(m, weights + i * experts, chosen, barred);
        for (int e = 0; e < experts; e++) {
            if (!chosen[e]) continue;
            int64_t at = (int64_t)e * width;
            product(both ? both : gates, both ? 2 * at : at, width, x, 1, gate);
            product(both ? both : ups, both ? 2 * at + width : at, width, x, 1, up);
            swiglu(gate, up, width);
            product(downs, (int64_t)e * n_embd, n_embd, gate, 1, down);
            for (int j = 0; j < n_embd; j++)
                y[i * n_embd + j] = fma32(weights[i * experts + e], down[j], y[i * n_embd + j]);
        }
    }
    free(weights), free(gate), free(up), free(down), free(chosen), free(barred);
    if (tensor(g, layer, "ffn_down_shexp.weight") == NULL) return y;
    float *shared = feed_forward(m, layer, h, n, "_shexp");
    float *open = project(m, layer, "ffn_gate_inp_shexp", h, n, n_embd, 1);
    for (int i = 0; i < n * n_embd; i++) y[i] = y[i] + (sigmoid(open[i / n_embd]) * shared[i]);
    free(shared), free(open);
    return y;
}

static void add_rows(float *x, float *branch, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = x[i] + branch[i];
    free(branch);
}

/* The hidden rows behind the last norm of tokens at positions from start on: float[n][n_embd]. Free it. */
static float *forward(Model *m, const int *tokens, int n, int start) {
    int n_embd = m->n_embd, pairs = m->rope_dim / 2;
    Tensor *embedding = needed(&m->g, -1, "token_embd.weight", m->n_vocab, n_embd);
    Row row = row_for(embedding);
    float *x = floats((size_t)(n * n_embd)), *h = floats((size_t)(n * n_embd)),
          *turns = floats((size_t)(n * m->rope_dim));
    for (int i = 0; i < n; i++) {
        decode(embedding, tokens[i], &row);
        dequantized(&row, x + i * n_embd);
        for (int p = 0; p < pairs; p++)
            turn_of((start + i) * m->frequencies[p], m->rope_factor, turns + i * m->rope_dim + 2 * p);
    }
    free_row(&row);
    for (int layer = 0; layer < m->n_layers; layer++) {
        norm_by(m, layer, "attn_norm.weight", x, n, n_embd, h);
        add_rows(
            x, m->layers[layer].delta ? delta_net(m, layer, h, n) : attention(m, layer, h, n, start, turns),
            (int64_t)n * n_embd
        );
        norm_by(m, layer, m->family->hybrid ? "post_attention_norm.weight" : "ffn_norm.weight", x, n, n_embd, h);
        add_rows(
            x, m->layers[layer].experts ? mixture(m, layer, h, n) : feed_forward(m, layer, h, n, ""),
            (int64_t)n * n_embd
        );
    }
    norm_by(m, -1, "output_norm.weight", x, n, n_embd, h);
    free(x), free(turns);
    return h;
}

/* Every tensor of the file must have been read: one that was not would have changed the numbers. */
static void check_all_read(const Model *m) {
    char prefix[32];
    for (uint64_t i = 0; i < m->g.n_tensors; i++) {
        const Tensor *t = m->g.tensors + i;
        bool draft = false;
        for (int layer = m->n_layers; layer < m->n_layers + integer(&m->g, "nextn_predict_layers", 0); layer++) {
            int size = snprintf(prefix, sizeof prefix, "blk.%d.", layer);
            draft = draft || !strncmp(t->name, prefix, (size_t)size);
        }
        if (!t->read && !draft) fail("tensor %s is not known here", t->name);
    }
}

/* Calls see(row, logits, context) for each of tokens from first on. Rows are worked on in chunks, which changes no
   bit. */
static void run(Model *m, const int *tokens, int n, int first, void (*see)(int, float *, void *), void *context) {
    enum { CHUNK = 64 };
    float *logits = floats((size_t)m->n_vocab * CHUNK);
    for (int start = 0; start < n; start += CHUNK) {
        int rows = n - start < CHUNK ? n - start : CHUNK, skipped = first > start ? first - start : 0;
        float *h = forward(m, tokens + start, rows, start);
        if (start == 0) check_all_read(m);
        if (skipped < rows) {
            product(m->head, 0, m->n_vocab, h + skipped * m->n_embd, rows - skipped, logits);
            for (int i = skipped; i < rows; i++) see(start + i, logits + (int64_t)(i - skipped) * m->n_vocab, context);
        }
        free(h);
    }
    free(logits);
}

/* ---- Sampling (sampling.md) ------------------------------------------------------------------------------------- */

enum { STEPS = 128, SUM_BLOCK = 1024 };

typedef struct {
    double temperature, top_p, min_p, repetition, presence, frequency;
    int64_t top_k, last_n;
    const Json *bias;
    uint64_t seed;
} Sampling;

static double exp64(double x) {
    static double steps[STEPS]; /* 2^(j / 128), correctly rounded */
    static const double coefficients[] = {1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0};
    if (steps[0] == 0) {
        for (int j = 0; j < STEPS; j++) steps[j] = exp_pair(times(LN2, exactly(j / 128.0))).hi;
    }
    if (x < -708) return 0;
    double k = (x * 0x1.71547652b82fep+7 + 0x1.8p52) - 0x1.8p52;
    double r = (x - k * 0x1.62e42feep-8) - k * 0x1.a39ef35793c76p-40, p = r * (1.0 / 120.0);
    for (int i = 0; i < 4; i++) p = (p + coefficients[i]) * r;
    int64_t n = (int64_t)k, j = n & (STEPS - 1);
    double t = double_of(wide_bits(steps[j]) + ((uint64_t)((n - j) / STEPS) << 52));
    return p * t + t;
}

static double log64(double x) { /* x is 1 or more, and finite */
    int e = (int)(wide_bits(x) >> 52) - 1022;
    double m = double_of((wide_bits(x) & 0xFFFFFFFFFFFFF) | 0x3FE0000000000000), series = 0;
    if (m < 0.7071067811865476) m = m * 2, e -= 1;
    double s = (m - 1) / (m + 1), square = s * s;
    for (int n = 25; n > 0; n -= 2) series = series * square + 1.0 / n;
    return e * (0x1.62e42feep-8 * 128) + (2 * s * series + e * (0x1.a39ef35793c76p-40 * 128));
}

static double uniform(uint64_t seed, uint64_t step) { /* Philox4x32-10 */
    uint32_t c[4] = {(uint32_t)step, (uint32_t)(step >> 32), 0, 0}, k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int i = 0; i < 10; i++, k[0] += 0x9E3779B9, k[1] += 0xBB67AE85) {
        uint64_t p = (uint64_t)c[0] * 0xD2511F53, q = (uint64_t)c[2] * 0xCD9E8D57;
        c[0] = (uint32_t)(q >> 32) ^ c[1] ^ k[0], c[1] = (uint32_t)q;
        c[2] = (uint32_t)(p >> 32) ^ c[3] ^ k[1], c[3] = (uint32_t)p;
    }
    return ((double)(c[0] >> 5) * 67108864.0 + (double)(c[1] >> 6)) * 0x1p-53;
}

static double ranked(double x) { return x == x ? x : -INFINITY; }

static void adjust(const Sampling *s, double *scores, int n, const int *history, int n_history) {
    for (size_t i = 0; s->bias != NULL && i < s->bias->size; i++) {
        long long id = strtoll(s->bias->members[i]->name, NULL, 10);
        if (id < 0 || id >= n || s->bias->members[i]->kind != J_TEXT) fail("logit_bias names token %lld", id);
        scores[id] = ranked(scores[id] + strtod(s->bias->members[i]->text, NULL));
    }
    int first = s->last_n >= 0 && s->last_n < n_history ? n_history - (int)s->last_n : 0;
    int *counts = allocate((size_t)n, sizeof *counts);
    for (int i = first; i < n_history; i++) counts[history[i]]++;
    for (int i = 0; i < n; i++) {
        if (counts[i] == 0) continue;
        double x = scores[i] <= 0 ? scores[i] * s->repetition : scores[i] / s->repetition;
        scores[i] = ranked(x - (counts[i] * s->frequency + s->presence));
    }
    free(counts);
}

static const double *sorted_scores;

static int by_score(const void *a, const void *b) {
    int i = *(const int *)a, j = *(const int *)b;
    double x = sorted_scores[i], y = sorted_scores[j];
    return x > y ? -1 : x < y ? 1 : i < j ? -1 : i > j;
}

/* Running sums in blocks: fills sums[n] with the page's S_i, and returns the last. */
static double running_sums(const double *w, int n, double *sums) {
    double before = 0, block = 0;
    for (int i = 0; i < n; i++) {
        if (i % SUM_BLOCK == 0) before = i ? sums[i - 1] : 0, block = 0;
        block = block + w[i];
        sums[i] = before + block;
    }
    return sums[n - 1];
}

static double below_top(double score, double top) {
    if (top == INFINITY) return score == top ? 0 : -INFINITY;
    return score - top;
}

/* Stages 4 to 8; order: ids by falling score. */
static int draw(const Sampling *s, const double *scores, int n, const int *order, uint64_t step) {
    int pool = s->top_k > 0 && s->top_k < n ? (int)s->top_k : n, chosen = -1, found = 0;
    double top = scores[order[0]], *w = allocate((size_t)pool, sizeof *w), *sums = allocate((size_t)pool, sizeof *sums);
    int *ids = allocate((size_t)pool, sizeof *ids);
    bool *kept = allocate((size_t)n, 1);
    for (int i = 0; i < pool; i++) kept[order[i]] = true;
    for (int i = 0; i < n; i++) {
        if (kept[i]) ids[found++] = i;
    }
    for (int i = 0; i < pool; i++) w[i] = exp64(below_top(scores[ids[i]], top));
    if (s->min_p > 0) {
        for (int i = 0; i < pool; i++) kept[ids[i]] = w[i] >= s->min_p;
    }
    if (s->top_p < 1) {
        double target = s->top_p * running_sums(w, pool, sums), sum = 0;
        bool reached = false;
        for (int i = 0; i < pool; i++) {
            if (!kept[order[i]]) continue;
            if (reached) kept[order[i]] = false;
            sum = sum + exp64(below_top(scores[order[i]], top));
            reached = reached || sum >= target;
        }
    }
    for (int i = 0; i < pool; i++) w[i] = kept[ids[i]] ? exp64(below_top(scores[ids[i]], top) / s->temperature) : 0;
    double target = uniform(s->seed, step) * running_sums(w, pool, sums);
    for (int i = 0; i < pool && chosen < 0; i++) chosen = sums[i] > target ? ids[i] : -1;
    free(w), free(sums), free(ids), free(kept);
    return chosen;
}

/* The token that follows history, -1 for none; step: its index in its text. */
static int sample(const Sampling *s, const float *logits, int n, const int *history, int n_history, uint64_t step) {
    double *scores = allocate((size_t)n, sizeof *scores);
    int *order = allocate((size_t)n, sizeof *order), best = 0;
    for (int i = 0; i < n; i++) scores[i] = ranked(logits[i]);
    adjust(s, scores, n, history, n_history);
    for (int i = 1; i < n; i++) best = scores[i] > scores[best] ? i : best;
    if (scores[best] == -INFINITY) best = -1;
    if (best >= 0 && s->temperature != 0) {
        for (int i = 0; i < n; i++) order[i] = i;
        sorted_scores = scores;
        qsort(order, (size_t)n, sizeof *order, by_score);
        best = draw(s, scores, n, order, step);
    }
    free(scores), free(order);
    return best;
}

static double log_probability(const float *logits, int n, int token) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) top = ranked(logits[i]) > top ? logits[i] : top;
    if (top == -INFINITY) return -log64(n);
    for (int i = 0; i < n; i++) sum = sum + exp64(below_top(ranked(logits[i]), top));
    return below_top(ranked(logits[token]), top) - log64(sum);
}

/* ---- Receipts (serving.md: "Records, replay, receipts"; CR 0.1) ------------------------------------------------- */

typedef struct {
    int *at;
    int n;
} Tokens;

static Tokens tokens_of(const Json *opened, const char *name, bool must) {
    const Json *list = member(opened, name);
    Tokens made = {NULL, 0};
    if (list == NULL && !must) return made;
    if (list == NULL || list->kind != J_LIST || list->size > 1 << 24) fail("opened.%s is no list of token ids", name);
    made.at = allocate(list->size, sizeof *made.at);
    for (size_t i = 0; i < list->size; i++) {
        const Json *id = list->members[i];
        long long value = id->kind == J_INTEGER && id->size < 12 ? strtoll(id->text, NULL, 10) : -1;
        if (value < 0 || value > INT32_MAX) fail("opened.%s has an entry that is no token id", name);
        made.at[made.n++] = (int)value;
    }
    return made;
}

static double parameter(const Json *parameters, const char *name) { /* float.hex of Python, "inf" and "-inf" */
    const Json *value = member(parameters, name);
    char *end;
    if (value == NULL || (value->kind != J_TEXT && value->kind != J_INTEGER)) fail("opened.parameters has no %s", name);
    double made = strtod(value->text, &end);
    if (*end || end == value->text || made - made != 0) fail("opened.parameters: %s is %s", name, value->text);
    return made;
}

static int64_t whole_parameter(const Json *parameters, const char *name) {
    const Json *value = member(parameters, name);
    errno = 0;
    int64_t made = value != NULL && value->kind == J_INTEGER ? strtoll(value->text, NULL, 10) : -2;
    if (made < -1 || errno) fail("opened.parameters has no %s", name);
    return made;
}

static void tensor_head(Sha *s, const char *dtype, size_t n) {
    char head[80];
    int size = snprintf(head, sizeof head, "{\"dtype\":\"%s\",\"shape\":[%zu]}", dtype, n);
    sha_add(s, head, (size_t)size);
}

static Digest tokens_digest(Tokens tokens) {
    Sha s = sha_begin();
    tensor_head(&s, "i4", (size_t)tokens.n);
    for (int i = 0; i < tokens.n; i++) {
        uint8_t b[4] = {
            (uint8_t)tokens.at[i], (uint8_t)(tokens.at[i] >> 8), (uint8_t)(tokens.at[i] >> 16),
            (uint8_t)(tokens.at[i] >> 24)
        };
        sha_add(&s, b, 4);
    }
    return sha_end(&s);
}

static Digest bytes_digest(const char *dtype, const void *bytes, size_t size, size_t n) {
    Sha s = sha_begin();
    tensor_head(&s, dtype, n);
    sha_add(&s, bytes, size);
    return sha_end(&s);
}

/* One more tensor of a collection; names have to come in order. */
static void collect(Sha *s, const char *name, Digest d) {
    char text[72], entry[160];
    int size = snprintf(entry, sizeof entry, "{\"digest\":\"%s\",\"name\":\"%s\"}", digest_text(d, text), name);
    sha_add(s, entry, (size_t)size);
}

static Digest parameters_digest(const Json *parameters) {
    Sha counted = sha_begin(), s = sha_begin();
    if (parameters == NULL || !canonical(&counted, parameters)) fail("opened.parameters is missing, or has a float");
    tensor_head(&s, "u1", (size_t)counted.length);
    canonical(&s, parameters);
    return sha_end(&s);
}

static uint64_t seed_of(const Json *opened) {
    const Json *seed = member(opened, "seed");
    errno = 0;
    if (seed == NULL || seed->kind != J_INTEGER || seed->text[0] == '-')
        fail("opened.seed is no integer from 0 to 2^64 - 1");
    uint64_t made = strtoull(seed->text, NULL, 10);
    if (errno) fail("opened.seed is no integer from 0 to 2^64 - 1");
    return made;
}

static Digest input_digest(const Json *opened, Tokens prompt, Tokens given) {
    Sha s = sha_begin();
    uint64_t seed = seed_of(opened);
    uint8_t b[8];
    for (int i = 0; i < 8; i++) b[i] = (uint8_t)(seed >> (8 * i));
    if (given.n) collect(&s, "given", tokens_digest(given));
    collect(&s, "parameters", parameters_digest(member(opened, "parameters")));
    collect(&s, "prompt", tokens_digest(prompt));
    collect(&s, "seed", bytes_digest("u8", b, 8, 1));
    return sha_end(&s);
}

static bool has_digest(const Json *section, Digest d) {
    char text[72];
    return is_text(member(section, "digest"), digest_text(d, text));
}

static bool is_integer(const Json *value, long long expected) {
    return value != NULL && value->kind == J_INTEGER && value->size < 19 && strtoll(value->text, NULL, 10) == expected;
}

static bool differs(const char *path, const char *why) {
    printf("%s: different: %s\n", path, why);
    return false;
}

/* What can be checked without computing: the certificate, and that all digests are those of the opened receipt. */
static bool check_digests(
    const Model *m, const char *path, const Json *receipt, Tokens prompt, Tokens given, Tokens output
) {
    const Json *manifest = member(receipt, "manifest"), *opened = member(receipt, "opened");
    Sha whole = sha_begin(), model = sha_begin();
    char text[72];
    if (!canonical(&whole, manifest)) fail("the manifest has a float");
    if (!is_text(member(receipt, "certificate"), digest_text(sha_end(&whole), text)))
        return differs(path, "the certificate is not the manifest's");
    const Json *arithmetic = member(manifest, "arithmetic"), *computation = member(manifest, "computation");
    if (!is_text(member(manifest, "digest_alg"), "sha256") || !is_text(member(computation, "id"), "zinc-rt.generate") ||
        !is_text(member(computation, "version"), "1")) {
        fail("the computation or the hash is another one than is known here");
    }
    if (!is_text(member(arithmetic, "profile"), "zinc-rt-fixed-order") ||
        !is_integer(member(member(arithmetic, "params"), "numerics"), 1)) {
        fail("the arithmetic is not zinc-rt-fixed-order with version 1 of the numerics");
    }
    const Json *parts = member(manifest, "model"), *inputs = member(manifest, "input"),
               *made = member(manifest, "output");
    const Json *shape = member(made, "shape");
    collect(&model, "gguf.sha256", bytes_digest("u1", m->g.digest.of, 32, 32));
    if (!has_digest(parts, sha_end(&model)) || !is_integer(member(parts, "n_tensors"), 1))
        return differs(path, "it is of another model");
    if (!has_digest(inputs, input_digest(opened, prompt, given)) ||
        !is_integer(member(inputs, "n_tensors"), 3 + (given.n > 0))) {
        return differs(path, "the input's digest is not that of the opened tokens, seed and parameters");
    }
    if (!has_digest(made, tokens_digest(output)) || shape == NULL || shape->kind != J_LIST || shape->size != 1 ||
        !is_integer(shape->members[0], output.n)) {
        return differs(path, "the output's digest is not that of the opened tokens");
    }
    return true;
}

static bool same_text(const Json *a, const Json *b) {
    return a != NULL && b != NULL && a->kind == J_TEXT && b->kind == J_TEXT && is_text(a, b->text);
}

/* Page: "Receipts", the chain: that an entry is of this receipt, and that it follows the one before if that was the one
   of the receipt checked before. Signatures are not checked here. */
static bool check_entry(const char *path, const Json *receipt) {
    static const Json *chain_before;
    static long long number_before = -2;
    const Json *entry = member(receipt, "entry"), *manifest = member(entry, "manifest");
    const Json *previous = member(manifest, "prev_chain"), *number = member(manifest, "number");
    Sha whole = sha_begin(), link = sha_begin();
    char text[72];
    if (entry == NULL) return true;
    if (manifest == NULL || !canonical(&whole, manifest)) fail("its entry has no manifest, or one with a float");
    if (previous == NULL || previous->kind != J_TEXT || number == NULL || number->kind != J_INTEGER)
        fail("its entry has no prev_chain and number");
    if (!is_text(member(entry, "certificate"), digest_text(sha_end(&whole), text)))
        return differs(path, "the certificate of its entry is not the entry's");
    sha_add(&link, previous->text, previous->size);
    sha_add(&link, text, strlen(text));
    if (!is_text(member(entry, "chain"), digest_text(sha_end(&link), text)))
        return differs(path, "the chain of its entry is not the hash of the entry before and the certificate");
    const Json *own = member(receipt, "manifest"), *made = member(manifest, "outputs");
    const Json *logprobs = member(member(receipt, "outputs"), "logprobs");
    if (!same_text(member(manifest, "receipt"), member(receipt, "certificate")) ||
        !same_text(member(member(manifest, "inputs"), "prompt"), member(member(own, "input"), "digest")) ||
        !same_text(member(made, "tokens"), member(member(own, "output"), "digest")) ||
        ((member(made, "logprobs") != NULL || logprobs != NULL) && !same_text(member(made, "logprobs"), logprobs)))
        return differs(path, "its entry is of another receipt");
    long long place = strtoll(number->text, NULL, 10);
    bool follows = place != number_before + 1 || same_text(previous, chain_before);
    chain_before = member(entry, "chain"), number_before = place;
    return follows || differs(path, "its entry does not follow the one before");
}

typedef struct {
    const char *path;
    Sampling sampling;
    const int *tokens; /* prompt, given, output */
    int n_prompt, n_before, n_vocab;
    const Json *logprobs;
    double *computed; /* the log-probability of each token, if they are asked for */
    bool equal;
} Check;

static void check_token(int row, float *logits, void *context) {
    Check *c = context;
    int place = row + 1 - c->n_before, recorded = c->tokens[row + 1];
    if (!c->equal) return;
    int computed = sample(&c->sampling, logits, c->n_vocab, c->tokens, row + 1, (uint64_t)(row + 1 - c->n_prompt));
    if (computed != recorded) {
        printf(
            "%s: different: token %d of the answer, at position %d, is %d in the receipt and ", c->path, place + 1,
            row + 1, recorded
        );
        if (computed < 0) printf("no token can be chosen\n");
        else printf("%d when computed\n", computed);
        c->equal = false;
    } else if (c->computed != NULL) {
        double own = c->computed[place] = log_probability(logits, c->n_vocab, recorded), value = own;
        if (c->logprobs != NULL) {
            const Json *given = c->logprobs->members[place];
            bool is_number = given->kind == J_TEXT || given->kind == J_FLOAT || given->kind == J_INTEGER;
            value = is_number ? strtod(given->text, NULL) : NAN;
        }
        if (wide_bits(value) == wide_bits(own)) return;
        printf("%s: different: the log-probability of token %d of the answer, at position ", c->path, place + 1);
        printf("%d, is %a in the receipt and %a when computed\n", row + 1, value, own);
        c->equal = false;
    }
}

static bool check_logprobs(const char *path, const Json *claimed, const double *computed, int n) {
    Sha s = sha_begin();
    char text[72];
    tensor_head(&s, "f8", (size_t)n);
    for (int i = 0; i < n; i++) {
        uint8_t b[8];
        for (int j = 0; j < 8; j++) b[j] = (uint8_t)(wide_bits(computed[i]) >> (8 * j));
        sha_add(&s, b, 8);
    }
    if (is_text(claimed, digest_text(sha_end(&s), text))) return true;
    return differs(path, "the digest of the log-probabilities is not that of the computed ones");
}

static Sampling sampling_of(const Json *opened) {
    const Json *p = member(opened, "parameters"), *bias = member(p, "logit_bias");
    return (Sampling){
        .temperature = parameter(p, "temperature"),
        .top_p = parameter(p, "top_p"),
        .min_p = parameter(p, "min_p"),
        .repetition = parameter(p, "repetition_penalty"),
        .presence = parameter(p, "presence_penalty"),
        .frequency = parameter(p, "frequency_penalty"),
        .top_k = whole_parameter(p, "top_k"),
        .last_n = whole_parameter(p, "repeat_last_n"),
        .bias = bias != NULL && bias->kind == J_OBJECT ? bias : NULL,
        .seed = seed_of(opened),
    };
}

static bool check_receipt(Model *m, const char *path) {
    const Json *receipt = json_of(read_file(path)), *opened = member(receipt, "opened");
    if (member(receipt, "manifest") == NULL) fail("it is no receipt: there is no manifest");
    if (opened == NULL) fail("it has digests alone; a receipt with its tokens comes from zinc replay ID --opened");
    if (member(opened, "grammar") != NULL || member(opened, "pictures") != NULL)
        fail("its answer has a grammar or pictures, which are not known here");
    if (member(opened, "adapters") != NULL) {
        const Json *names = member(member(receipt, "meta"), "adapters"), *first = NULL;
        if (names != NULL && names->kind == J_LIST && names->size) first = names->members[0];
        fail("its answer has the adapter %s, and adapters are not known here",
             first != NULL && first->kind == J_TEXT ? first->text : "of no name");
    }
    Tokens prompt = tokens_of(opened, "prompt", true), given = tokens_of(opened, "given", false),
           output = tokens_of(opened, "output", true);
    if (!check_digests(m, path, receipt, prompt, given, output) || !check_entry(path, receipt)) return false;
    int before = prompt.n + given.n, n = before + output.n;
    Check c = {
        .path = path,
        .sampling = sampling_of(opened),
        .n_prompt = prompt.n,
        .n_before = before,
        .n_vocab = m->n_vocab,
        .equal = true
    };
    int *tokens = allocate((size_t)n, sizeof *tokens);
    if (prompt.n) memcpy(tokens, prompt.at, (size_t)prompt.n * sizeof *tokens);
    if (given.n) memcpy(tokens + prompt.n, given.at, (size_t)given.n * sizeof *tokens);
    if (output.n) memcpy(tokens + before, output.at, (size_t)output.n * sizeof *tokens);
    for (int i = 0; i < n; i++) {
        if (tokens[i] >= m->n_vocab) return differs(path, "a token id is beyond the vocabulary");
    }
    const Json *kv = member(member(opened, "parameters"), "kv");
    if (!is_text(kv, "f16") && !is_text(kv, "q8_0")) fail("its KV cache is neither f16 nor q8_0");
    const Json *claimed = member(member(receipt, "outputs"), "logprobs");
    c.tokens = tokens, c.logprobs = member(opened, "logprobs");
    if (c.logprobs != NULL || claimed != NULL) c.computed = allocate((size_t)output.n, sizeof(double));
    if (c.logprobs != NULL && (c.logprobs->kind != J_LIST || (int)c.logprobs->size != output.n))
        fail("opened.logprobs is no list of one number for each token");
    if (prompt.n == 0) fail("the prompt has no tokens");
    if (output.n) {
        begin_sequence(m, n - 1, is_text(kv, "q8_0"));
        run(m, tokens, n - 1, before - 1, check_token, &c);
    }
    if (c.equal && claimed != NULL) c.equal = check_logprobs(path, claimed, c.computed, output.n);
    if (c.equal) printf("%s: equal: %d tokens\n", path, output.n);
    return c.equal;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static void print_logits(int row, float *logits, void *context) {
    const Model *m = context;
    (void)row;
    for (int i = 0; i < m->n_vocab; i++) printf("%08x%c", bits_of(logits[i]), i + 1 < m->n_vocab ? ' ' : '\n');
}

static void show_logits(Model *m, const char *ids, bool q8_cache) {
    int *tokens = allocate(strlen(ids) + 1, sizeof *tokens), n = 0;
    about = NULL;
    for (const char *at = ids; *at;) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id >= m->n_vocab || (*end && *end != ','))
            fail("%s are no token ids from 0 to %d with commas between", ids, m->n_vocab - 1);
        tokens[n++] = (int)id;
        at = *end ? end + 1 : end;
    }
    if (n == 0) fail("give token ids with commas between");
    begin_sequence(m, n, q8_cache);
    run(m, tokens, n, 0, print_logits, m);
    free(tokens);
}

int main(int count, char **words) {
    static const char usage[] =
        "usage: verifier MODEL.gguf RECEIPT.json ...    compute answers again: equal (exit code 0), or where not (1)\n"
        "       verifier MODEL.gguf --logits ID,...      print the bits of the logits after each token\n"
        "       verifier MODEL.gguf --logits-q8_0 ID,... the same with a KV cache of Q8_0\n";
    bool equal = true;
    if (count < 3 || (!strncmp(words[2], "--", 2) && count != 4)) {
        fputs(usage, stderr);
        return FAILED;
    }
    Model m = open_model(words[1]);
    if (!strcmp(words[2], "--logits") || !strcmp(words[2], "--logits-q8_0")) {
        show_logits(&m, words[3], words[2][8] != 0);
    } else if (!strncmp(words[2], "--", 2)) {
        fputs(usage, stderr);
        return FAILED;
    } else {
        m.g.digest = sha_of(m.g.file.at, m.g.file.size);
        for (int i = 2; i < count; i++) equal = check_receipt(&m, words[i]) && equal;
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? equal ? EQUAL : DIFFERENT : FAILED;
}
