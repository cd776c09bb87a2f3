// One layer of the paged key/value cache: [page][2][kv_head][position of PAGE][HEAD_DIM]. Layers are stored one
// after the other, so the data of one layer is contiguous.

struct Cache {
    T* pages;
    int kv_heads;
};

// The position of a padding column.
#define PADDING 0xffffffffu

// Returns the address of the keys of a head in the first page.
DEVICE T* cache_keys(Cache c, int head) { return c.pages + head * (PAGE * HEAD_DIM); }

// Returns the distance from a key to its value, in elements.
DEVICE u64 cache_values(Cache c) { return (u64)c.kv_heads * (PAGE * HEAD_DIM); }

// Returns the distance from the start of the cache to a position of a sequence, in elements.
DEVICE u64 cache_offset(Cache c, const u32* table, u32 position) {
    return table[position / PAGE] * (2 * cache_values(c)) + position % PAGE * HEAD_DIM;
}
