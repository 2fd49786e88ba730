//! Blocks for bytes in flight: what a slow sink has not taken yet, and cut-off tails of records.
//!
//! One block size, reserved as one zeroed run at start and touched on demand; a [`Chain`] strings
//! blocks together. A flow that moves nothing holds no block. The pool never grows: when it is
//! empty, [`Pool::push`] refuses.

use std::io::IoSlice;

/// Bytes of one block: a page, so that a small remainder costs no more than that.
pub const BLOCK_LEN: usize = 4096;
/// Slices that one vectored write takes from a chain.
pub const CHAIN_SLICES_MAX: usize = 40;

const NONE: u32 = u32::MAX;

/// The pool has no block left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// A queue of bytes in blocks of a [`Pool`]. Give it back with [`Pool::clear`].
#[derive(Debug)]
pub struct Chain {
    head: u32,
    tail: u32,
    /// Bytes of the first block that were taken already.
    offset: u32,
    len: u32,
}

impl Chain {
    /// An empty queue.
    pub const EMPTY: Self = Self { head: NONE, tail: NONE, offset: 0, len: 0 };

    /// Bytes in the queue.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is nothing in it; it holds no block then.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A fixed number of blocks.
pub struct Pool {
    memory: Vec<u8>,
    /// For each block that was ever used: the next one of its chain or of the free list.
    next: Vec<u32>,
    free: u32,
    free_len: usize,
}

impl Pool {
    /// Reserves `blocks` blocks; the memory is not touched.
    pub fn new(blocks: usize) -> Self {
        Self {
            memory: vec![0; blocks * BLOCK_LEN],
            next: Vec::with_capacity(blocks),
            free: NONE,
            free_len: 0,
        }
    }

    /// Bytes that fit into blocks no chain holds.
    pub fn room(&self) -> usize {
        (self.free_len + self.next.capacity() - self.next.len()) * BLOCK_LEN
    }

    /// Bytes that fit into all blocks.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Blocks that chains hold.
    pub fn in_use(&self) -> usize {
        self.next.len() - self.free_len
    }

    /// Appends bytes to a chain.
    ///
    /// # Errors
    /// [`Exhausted`], and then nothing was appended.
    pub fn push(&mut self, chain: &mut Chain, mut bytes: &[u8]) -> Result<(), Exhausted> {
        let tail_room = if chain.head == NONE { 0 } else { BLOCK_LEN - self.tail_fill(chain) };
        if bytes.len() > tail_room + self.room() {
            return Err(Exhausted);
        }
        while !bytes.is_empty() {
            let mut fill = if chain.head == NONE { BLOCK_LEN } else { self.tail_fill(chain) };
            if fill == BLOCK_LEN {
                let block = self.take_block();
                if chain.head == NONE {
                    chain.head = block;
                    chain.offset = 0;
                } else {
                    self.next[chain.tail as usize] = block;
                }
                chain.tail = block;
                fill = 0;
            }
            let take = bytes.len().min(BLOCK_LEN - fill);
            let (now, later) = bytes.split_at(take);
            let at = chain.tail as usize * BLOCK_LEN + fill;
            self.memory[at..at + take].copy_from_slice(now);
            chain.len += take as u32;
            bytes = later;
        }
        Ok(())
    }

    /// Takes bytes from the front until `out` is full or the chain is empty; returns how many.
    pub fn pop_into(&mut self, chain: &mut Chain, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() && !chain.is_empty() {
            let front = self.front(chain);
            let take = front.len().min(out.len() - done);
            out[done..done + take].copy_from_slice(&front[..take]);
            done += take;
            self.consume(chain, take);
        }
        done
    }

    /// The chain's bytes as slices for a vectored write; as many as fit.
    pub fn slices<'a>(&'a self, chain: &Chain, out: &mut [IoSlice<'a>]) -> usize {
        let mut left = chain.len();
        let (mut block, mut offset) = (chain.head, chain.offset as usize);
        let mut count = 0;
        while left > 0 && count < out.len() {
            let take = left.min(BLOCK_LEN - offset);
            let at = block as usize * BLOCK_LEN + offset;
            out[count] = IoSlice::new(&self.memory[at..at + take]);
            count += 1;
            left -= take;
            offset = 0;
            block = self.next[block as usize];
        }
        count
    }

    /// Drops `count` bytes from the front and gives emptied blocks back.
    ///
    /// # Panics
    /// When the chain has fewer.
    pub fn consume(&mut self, chain: &mut Chain, mut count: usize) {
        assert!(count <= chain.len(), "a chain gives no more than it has");
        while count > 0 {
            let take = count.min(self.front(chain).len());
            chain.len -= take as u32;
            chain.offset += take as u32;
            count -= take;
            if chain.is_empty() || chain.offset as usize == BLOCK_LEN {
                let next = self.next[chain.head as usize];
                self.give_block(chain.head);
                chain.head = if chain.is_empty() { NONE } else { next };
                chain.offset = 0;
            }
        }
    }

    /// Empties a chain.
    pub fn clear(&mut self, chain: &mut Chain) {
        self.consume(chain, chain.len());
    }

    fn front(&self, chain: &Chain) -> &[u8] {
        let offset = chain.offset as usize;
        let take = chain.len().min(BLOCK_LEN - offset);
        let at = chain.head as usize * BLOCK_LEN + offset;
        &self.memory[at..at + take]
    }

    /// Bytes of the last block that are filled, counting those taken from its front.
    fn tail_fill(&self, chain: &Chain) -> usize {
        let end = chain.offset as usize + chain.len();
        end - (end - 1) / BLOCK_LEN * BLOCK_LEN
    }

    fn take_block(&mut self) -> u32 {
        if self.free == NONE {
            self.next.push(NONE);
            return u32::try_from(self.next.len() - 1).expect("a pool has less than 2^32 blocks");
        }
        let block = self.free;
        self.free = std::mem::replace(&mut self.next[block as usize], NONE);
        self.free_len -= 1;
        block
    }

    fn give_block(&mut self, block: u32) {
        self.next[block as usize] = self.free;
        self.free = block;
        self.free_len += 1;
    }
}

#[cfg(test)]
mod tests;
