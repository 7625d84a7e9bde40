/* Reads the sorted table in .eh_frame_hdr, finds the FDE of a function, and runs the FDE's call
 * frame program up to the given address. Names follow the DWARF standard and the LSB's chapter on
 * .eh_frame. */
#include "heap/cfi.h"

#include <errno.h>

#include "heap/cfi_read.h"

enum { REG_FP = 6, REG_SP = 7, REG_RA = 16 };
enum { REMEMBERED_MAX = 8 };

/* The encoding of a pointer: the low four bits are its format, and the bits above select the base
 * address that is added to it. */
enum {
    ENC_FORM = 0x0f,
    ENC_BASE = 0x70,
    ENC_PCREL = 0x10,
    ENC_DATAREL = 0x30,
    ENC_INDIRECT = 0x80,
    ENC_OMIT = 0xff,
    ENC_DATAREL_SDATA4 = 0x3b,
};

enum {
    OP_NOP = 0x00,
    OP_SET_LOC = 0x01,
    OP_ADVANCE1 = 0x02,
    OP_ADVANCE2 = 0x03,
    OP_ADVANCE4 = 0x04,
    OP_OFFSET = 0x05,
    OP_RESTORE = 0x06,
    OP_UNDEFINED = 0x07,
    OP_SAME = 0x08,
    OP_REGISTER = 0x09,
    OP_REMEMBER = 0x0a,
    OP_RECALL = 0x0b,
    OP_CFA = 0x0c,
    OP_CFA_REGISTER = 0x0d,
    OP_CFA_OFFSET = 0x0e,
    OP_CFA_EXPRESSION = 0x0f,
    OP_EXPRESSION = 0x10,
    OP_OFFSET_SF = 0x11,
    OP_CFA_SF = 0x12,
    OP_CFA_OFFSET_SF = 0x13,
    OP_VAL_OFFSET = 0x14,
    OP_VAL_OFFSET_SF = 0x15,
    OP_VAL_EXPRESSION = 0x16,
    OP_ARGS_SIZE = 0x2e,
    OP_OFFSET_NEGATIVE = 0x2f,
    /* In the operations below, the low six bits are the operand. */
    OP_SHORT_ADVANCE = 0x40,
    OP_SHORT_OFFSET = 0x80,
    OP_SHORT_RESTORE = 0xc0,
};

/* The DWARF expression operations that compilers and linkers use for the CFA and saved
 * registers. */
enum { EX_DEREF = 0x06, EX_BREG0 = 0x70 };

enum saved { SAVED_NO = 0, SAVED_SAME, SAVED_AT_CFA, SAVED_EXPRESSION, SAVED_UNDEFINED, SAVED_ODD };

struct expression {
    size_t at, len; /* offset and length of the expression in the section */
};

struct place {
    enum saved how;
    int64_t offset;
    struct expression expression;
};

struct row {
    /* True if the CFA is given by an expression, false if it is reg + offset. */
    bool has_expression;
    uint64_t cfa_reg;
    int64_t cfa_offset;
    struct expression cfa_expression;
    struct place fp, ra;
};

/* The fields of a CIE, shared by all functions that refer to it. */
struct common {
    uint64_t code_align;
    int64_t data_align;
    uint64_t ra_reg;
    uint8_t encoding;
    bool has_augmentation;
    bool is_signal;
    struct cfi_cursor program;
};

struct machine {
    const struct common *common;
    struct row row, initial;
    struct row remembered[REMEMBERED_MAX];
    size_t remembered_count;
    uint64_t at, ip; /* address that the call frame program has reached, and address to stop at */
};

static uint64_t read_form(struct cfi_cursor *c, uint8_t form)
{
    switch (form) {
    case 0x0: /* an absolute address of 8 bytes */
    case 0x4:
    case 0xc:
        return cfi_unsigned(c, 8);
    case 0x1:
        return cfi_uleb(c);
    case 0x2:
        return cfi_unsigned(c, 2);
    case 0x3:
        return cfi_unsigned(c, 4);
    case 0x9:
        return (uint64_t)cfi_sleb(c);
    case 0xa:
        return (uint64_t)cfi_signed(c, 2);
    case 0xb:
        return (uint64_t)cfi_signed(c, 4);
    default:
        c->is_bad = true;
        return 0;
    }
}

static uint64_t read_pointer(struct cfi_cursor *c, uint8_t encoding)
{
    uint64_t here = cfi_address(c), v = read_form(c, encoding & ENC_FORM);
    switch (encoding & (ENC_BASE | ENC_INDIRECT)) {
    case 0:
        return v;
    case ENC_PCREL:
        return v + here;
    case ENC_DATAREL:
        return v + c->s->header;
    default:
        c->is_bad = true;
        return 0;
    }
}

/* Reads the length of a CIE or FDE. Moves the cursor to the entry's id, and lets the cursor end
 * where the entry ends. */
static void enter_entry(struct cfi_cursor *c)
{
    uint64_t len = cfi_unsigned(c, 4);
    if (len == 0xffffffff)
        len = cfi_unsigned(c, 8);
    if (len == 0)
        c->is_bad = true;
    cfi_narrow(c, len);
}

/* Reads the augmentation letters after 'z'. An unknown letter before 'R' would shift the position
 * of the value of 'R', so a CIE with unknown letters is rejected. */
static void read_augmentation(struct cfi_cursor *c, const uint8_t *letters, size_t n,
                              struct common *ret)
{
    for (size_t i = 0; i < n && !c->is_bad; i++) {
        if (letters[i] == 'R') {
            ret->encoding = cfi_byte(c);
        } else if (letters[i] == 'P') {
            uint8_t encoding = cfi_byte(c);
            if (encoding != ENC_OMIT)
                read_form(c, encoding & ENC_FORM);
        } else if (letters[i] == 'L') {
            cfi_byte(c);
        } else if (letters[i] == 'S') {
            ret->is_signal = true;
        } else {
            c->is_bad = true;
        }
    }
}

static bool read_common(struct cfi_cursor c, struct common *ret)
{
    uint8_t version;
    size_t letters;
    *ret = (struct common){0};
    enter_entry(&c);
    if (cfi_unsigned(&c, 4) != 0)
        return false;
    version = cfi_byte(&c);
    if (version != 1 && version != 3)
        return false;
    letters = c.at;
    while (cfi_byte(&c))
        ;
    size_t n = c.at - letters - 1;
    ret->code_align = cfi_uleb(&c);
    ret->data_align = cfi_sleb(&c);
    ret->ra_reg = version == 1 ? cfi_byte(&c) : cfi_uleb(&c);
    if (c.is_bad)
        return false;
    if (n > 0) {
        if (c.s->bytes[letters] != 'z')
            return false;
        ret->has_augmentation = true;
        uint64_t len = cfi_uleb(&c);
        struct cfi_cursor inner = c;
        cfi_narrow(&inner, len);
        read_augmentation(&inner, c.s->bytes + letters + 1, n - 1, ret);
        cfi_skip(&c, len);
        if (inner.is_bad)
            return false;
    }
    ret->program = c;
    return !c.is_bad;
}

/* Finds the FDE for IP. The table is sorted by address; its last entry whose address is at most IP
 * contains the address of the FDE. */
static int find_entry(const struct cfi_section *s, uint64_t ip, uint64_t *ret)
{
    struct cfi_cursor c = cfi_cursor_at(s, s->header);
    uint64_t count;
    if (cfi_byte(&c) != 1)
        return -EBADMSG;
    uint8_t frame_encoding = cfi_byte(&c), count_encoding = cfi_byte(&c);
    uint8_t table_encoding = cfi_byte(&c);
    if (table_encoding != ENC_DATAREL_SDATA4 || count_encoding == ENC_OMIT)
        return -EOPNOTSUPP;
    if (frame_encoding != ENC_OMIT)
        read_form(&c, frame_encoding & ENC_FORM);
    count = read_pointer(&c, count_encoding);
    if (c.is_bad || count > (c.end - c.at) / 8)
        return -EBADMSG;

    size_t table = c.at, low = 0, high = (size_t)count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        c.at = table + middle * 8;
        if (s->header + (uint64_t)cfi_signed(&c, 4) <= ip)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return -ENOENT;
    c.at = table + (low - 1) * 8 + 4;
    *ret = s->header + (uint64_t)cfi_signed(&c, 4);
    return 0;
}

static struct expression read_expression(struct cfi_cursor *c)
{
    uint64_t len = cfi_uleb(c);
    struct expression e = {.at = c->at, .len = (size_t)len};
    cfi_skip(c, len);
    return e;
}

static void set_place(struct machine *m, uint64_t reg, struct place place)
{
    if (reg == REG_FP)
        m->row.fp = place;
    else if (reg == m->common->ra_reg)
        m->row.ra = place;
}

static void set_saved(struct machine *m, uint64_t reg, int64_t factored)
{
    uint64_t offset = (uint64_t)factored * (uint64_t)m->common->data_align;
    set_place(m, reg, (struct place){.how = SAVED_AT_CFA, .offset = (int64_t)offset});
}

static void restore(struct machine *m, uint64_t reg)
{
    if (reg == REG_FP)
        m->row.fp = m->initial.fp;
    else if (reg == m->common->ra_reg)
        m->row.ra = m->initial.ra;
}

static void set_cfa(struct machine *m, uint64_t reg, int64_t offset)
{
    m->row.has_expression = false;
    m->row.cfa_reg = reg;
    m->row.cfa_offset = offset;
}

/* Advances the location of the call frame program. Returns true if the requested address lies
 * before the new location. */
static bool advance(struct machine *m, uint64_t by)
{
    uint64_t next = m->at + by * m->common->code_align;
    if (next > m->ip || next < m->at)
        return true;
    m->at = next;
    return false;
}

static int64_t factor(const struct machine *m, int64_t v)
{
    return (int64_t)((uint64_t)v * (uint64_t)m->common->data_align);
}

/* If OP defines the CFA, runs OP and returns true. */
static bool step_cfa(struct machine *m, struct cfi_cursor *c, uint8_t op)
{
    uint64_t reg;
    switch (op) {
    case OP_CFA:
        reg = cfi_uleb(c);
        set_cfa(m, reg, (int64_t)cfi_uleb(c));
        return true;
    case OP_CFA_SF:
        reg = cfi_uleb(c);
        set_cfa(m, reg, factor(m, cfi_sleb(c)));
        return true;
    case OP_CFA_REGISTER:
        set_cfa(m, cfi_uleb(c), m->row.cfa_offset);
        return true;
    case OP_CFA_OFFSET:
        set_cfa(m, m->row.cfa_reg, (int64_t)cfi_uleb(c));
        return true;
    case OP_CFA_OFFSET_SF:
        set_cfa(m, m->row.cfa_reg, factor(m, cfi_sleb(c)));
        return true;
    case OP_CFA_EXPRESSION:
        m->row.has_expression = true;
        m->row.cfa_expression = read_expression(c);
        return true;
    default:
        return false;
    }
}

/* If OP defines where a register is saved, runs OP and returns true. */
static bool step_register(struct machine *m, struct cfi_cursor *c, uint8_t op)
{
    if (op < OP_OFFSET || (op > OP_REGISTER && op < OP_EXPRESSION) ||
        (op > OP_VAL_EXPRESSION && op != OP_OFFSET_NEGATIVE))
        return false;
    uint64_t reg = cfi_uleb(c);
    switch (op) {
    case OP_OFFSET:
    case OP_OFFSET_NEGATIVE:
        set_saved(m, reg, (int64_t)(op == OP_OFFSET ? cfi_uleb(c) : -cfi_uleb(c)));
        break;
    case OP_OFFSET_SF:
        set_saved(m, reg, cfi_sleb(c));
        break;
    case OP_RESTORE:
        restore(m, reg);
        break;
    case OP_UNDEFINED:
        set_place(m, reg, (struct place){.how = SAVED_UNDEFINED});
        break;
    case OP_SAME:
        set_place(m, reg, (struct place){.how = SAVED_SAME});
        break;
    case OP_EXPRESSION:
        set_place(m, reg,
                  (struct place){.how = SAVED_EXPRESSION, .expression = read_expression(c)});
        break;
    case OP_VAL_EXPRESSION:
        read_expression(c);
        set_place(m, reg, (struct place){.how = SAVED_ODD});
        break;
    default: /* OP_REGISTER: saved in another register; OP_VAL_OFFSET: the value is CFA + offset */
        cfi_uleb(c);
        set_place(m, reg, (struct place){.how = SAVED_ODD});
    }
    return true;
}

static bool step_rest(struct machine *m, struct cfi_cursor *c, uint8_t op)
{
    switch (op) {
    case OP_NOP:
        return false;
    case OP_SET_LOC: {
        uint64_t to = read_pointer(c, m->common->encoding);
        if (to > m->ip)
            return true;
        m->at = to;
        return false;
    }
    case OP_ADVANCE1:
        return advance(m, cfi_byte(c));
    case OP_ADVANCE2:
        return advance(m, cfi_unsigned(c, 2));
    case OP_ADVANCE4:
        return advance(m, cfi_unsigned(c, 4));
    case OP_REMEMBER:
        if (m->remembered_count == REMEMBERED_MAX)
            c->is_bad = true;
        else
            m->remembered[m->remembered_count++] = m->row;
        return false;
    case OP_RECALL:
        if (m->remembered_count == 0)
            c->is_bad = true;
        else
            m->row = m->remembered[--m->remembered_count];
        return false;
    case OP_ARGS_SIZE:
        cfi_uleb(c);
        return false;
    default:
        c->is_bad = true;
        return false;
    }
}

/* Runs the call frame program until it ends or passes the requested address. */
static bool run_program(struct machine *m, struct cfi_cursor *c)
{
    bool is_there = false;
    while (!is_there && c->at < c->end && !c->is_bad) {
        uint8_t op = cfi_byte(c), operand = op & 0x3f;
        switch (op & 0xc0) {
        case OP_SHORT_ADVANCE:
            is_there = advance(m, operand);
            break;
        case OP_SHORT_OFFSET:
            set_saved(m, operand, (int64_t)cfi_uleb(c));
            break;
        case OP_SHORT_RESTORE:
            restore(m, operand);
            break;
        default:
            if (!step_cfa(m, c, op) && !step_register(m, c, op))
                is_there = step_rest(m, c, op);
        }
    }
    return !c->is_bad;
}

static bool cfi_fits(int64_t v)
{
    return v >= INT32_MIN && v <= INT32_MAX;
}

/* Recognises "REG + offset", optionally followed by a dereference. */
static bool simple_expression(const struct cfi_section *s, struct expression e, uint64_t *ret_reg,
                              int64_t *ret_offset, bool *ret_deref)
{
    struct cfi_cursor c = {.s = s, .at = e.at, .end = e.at + e.len};
    uint8_t op = cfi_byte(&c);
    if (op < EX_BREG0 || op > EX_BREG0 + 31)
        return false;
    *ret_reg = op - EX_BREG0;
    *ret_offset = cfi_sleb(&c);
    *ret_deref = c.at < c.end;
    if (*ret_deref && cfi_byte(&c) != EX_DEREF)
        return false;
    return !c.is_bad && c.at == c.end && cfi_fits(*ret_offset);
}

/* Recognises the expression that linkers emit for .plt: breg7 8; breg16 0; lit15; and; litN; ge;
 * lit3; shl; plus. */
static bool plt_expression(const struct cfi_section *s, struct expression e, int32_t *ret)
{
    static const uint8_t before[] = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a};
    static const uint8_t after[] = {0x2a, 0x33, 0x24, 0x22};
    const uint8_t *b = s->bytes + e.at;
    if (e.len != sizeof before + 1 + sizeof after || memcmp(b, before, sizeof before) != 0 ||
        memcmp(b + sizeof before + 1, after, sizeof after) != 0)
        return false;
    *ret = b[sizeof before] - 0x30;
    return *ret >= 0 && *ret < 16;
}

static int cfa_rule(const struct cfi_section *s, const struct row *row, struct cfi_rule *ret)
{
    uint64_t reg = row->cfa_reg;
    int64_t offset = row->cfa_offset;
    bool is_pointer = false;
    if (row->has_expression) {
        if (plt_expression(s, row->cfa_expression, &ret->cfa_offset)) {
            ret->cfa = CFI_CFA_PLT;
            return 0;
        }
        if (!simple_expression(s, row->cfa_expression, &reg, &offset, &is_pointer))
            return -EOPNOTSUPP;
    }
    if ((reg != REG_SP && reg != REG_FP) || !cfi_fits(offset))
        return -EOPNOTSUPP;
    if (is_pointer)
        ret->cfa = reg == REG_SP ? CFI_CFA_SP_POINTER : CFI_CFA_FP_POINTER;
    else
        ret->cfa = reg == REG_SP ? CFI_CFA_SP : CFI_CFA_FP;
    ret->cfa_offset = (int32_t)offset;
    return 0;
}

static void fp_rule(const struct cfi_section *s, const struct place *fp, struct cfi_rule *ret)
{
    int64_t offset = fp->offset;
    uint64_t reg = 0;
    bool is_pointer = false;
    ret->fp = CFI_FP_LOST;
    ret->fp_offset = 0;
    if (fp->how == SAVED_NO || fp->how == SAVED_SAME) {
        ret->fp = CFI_FP_SAME;
    } else if (fp->how == SAVED_AT_CFA && cfi_fits(offset)) {
        ret->fp = CFI_FP_AT_CFA;
        ret->fp_offset = (int32_t)offset;
    } else if (fp->how == SAVED_EXPRESSION &&
               simple_expression(s, fp->expression, &reg, &offset, &is_pointer) && reg == REG_FP &&
               !is_pointer) {
        ret->fp = CFI_FP_AT_FP;
        ret->fp_offset = (int32_t)offset;
    }
}

/* Returns true if ROW describes the frame of a signal handler. The CFA rule alone identifies this
 * frame, because the kernel's layout of the frame is fixed. */
static bool is_signal_frame(const struct cfi_section *s, const struct row *row)
{
    enum { UCONTEXT_SP = 160 };
    uint64_t reg;
    int64_t offset;
    bool is_pointer;

    return row->has_expression &&
           simple_expression(s, row->cfa_expression, &reg, &offset, &is_pointer) && reg == REG_SP &&
           offset == UCONTEXT_SP && is_pointer;
}

static int rule_of(const struct cfi_section *s, const struct machine *m, struct cfi_rule *ret)
{
    struct cfi_rule rule = {0};
    const struct row *row = &m->row;
    if (m->common->is_signal) {
        if (!is_signal_frame(s, row))
            return -EOPNOTSUPP;
        *ret = (struct cfi_rule){.cfa = CFI_CFA_SIGNAL};
        return 0;
    }
    if (row->ra.how == SAVED_UNDEFINED) {
        *ret = (struct cfi_rule){.cfa = CFI_CFA_END};
        return 0;
    }
    if (row->ra.how != SAVED_AT_CFA || row->ra.offset != -8)
        return -EOPNOTSUPP;
    int r = cfa_rule(s, row, &rule);
    if (r < 0)
        return r;
    fp_rule(s, &row->fp, &rule);
    *ret = rule;
    return 0;
}

int cfi_find(const struct cfi_section *s, uint64_t ip, struct cfi_rule *ret)
{
    struct common common;
    uint64_t entry, start, len;
    int r = find_entry(s, ip, &entry);
    if (r < 0)
        return r;
    struct cfi_cursor c = cfi_cursor_at(s, entry);
    enter_entry(&c);
    uint64_t id_at = cfi_address(&c), id = cfi_unsigned(&c, 4);
    if (c.is_bad || id == 0 || !read_common(cfi_cursor_at(s, id_at - id), &common))
        return -EBADMSG;
    start = read_pointer(&c, common.encoding);
    len = read_form(&c, common.encoding & ENC_FORM);
    if (common.has_augmentation)
        cfi_skip(&c, cfi_uleb(&c));
    if (c.is_bad)
        return -EBADMSG;
    if (ip < start || ip - start >= len)
        return -ENOENT;
    if (common.ra_reg != REG_RA)
        return -EOPNOTSUPP;

    struct machine m = {.common = &common, .at = start, .ip = UINT64_MAX};
    if (!run_program(&m, &common.program))
        return -EBADMSG;
    m.initial = m.row;
    m.at = start;
    m.ip = ip;
    if (!run_program(&m, &c))
        return -EBADMSG;
    return rule_of(s, &m, ret);
}
