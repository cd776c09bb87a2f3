// The paged cache of keys and values, as one layer sees it: [page][2][kv_head][position of PAGE][HEAD_DIM]. The layers
// lie one after the other, so that what a layer reads lies close together.

struct Cache {
    T* pages;
    int kv_heads;
};

// A position that stands for none: the column only fills its batch up.
#define NOBODY 0xffffffffu

// The keys of a head in the first page.
DEVICE T* cache_keys(Cache c, int head) { return c.pages + head * (PAGE * HEAD_DIM); }

// Elements from a key to its value.
DEVICE u64 cache_values(Cache c) { return (u64)c.kv_heads * (PAGE * HEAD_DIM); }

// Elements from the start of the cache to a position of a sequence.
DEVICE u64 cache_offset(Cache c, const u32* table, u32 position) {
    return table[position / PAGE] * (2 * cache_values(c)) + position % PAGE * HEAD_DIM;
}
