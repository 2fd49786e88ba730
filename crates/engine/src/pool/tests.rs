use proptest::prelude::*;

use super::*;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ seed).collect()
}

fn joined(slices: &[IoSlice<'_>]) -> Vec<u8> {
    let parts: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
    parts.concat()
}

/// Reads a chain without taking from it, through as many vectored writes as it needs.
fn peek(pool: &Pool, chain: &Chain) -> Vec<u8> {
    let blocks = chain.len() / BLOCK_LEN + 2;
    let mut slices = vec![IoSlice::new(&[]); blocks];
    let count = pool.slices(chain, &mut slices);
    assert!(slices[..count].iter().all(|s| !s.is_empty()));
    joined(&slices[..count])
}

#[test]
fn bytes_come_out_in_order() {
    let mut pool = Pool::new(4);
    let mut chain = Chain::EMPTY;
    assert!(chain.is_empty());
    for (n, len) in [1, BLOCK_LEN - 2, 1, 1, BLOCK_LEN].into_iter().enumerate() {
        pool.push(&mut chain, &pattern(len, n as u8)).unwrap();
    }
    let expected: Vec<u8> = [1, BLOCK_LEN - 2, 1, 1, BLOCK_LEN]
        .into_iter()
        .enumerate()
        .flat_map(|(n, len)| pattern(len, n as u8))
        .collect();
    assert_eq!(chain.len(), expected.len());
    assert_eq!(peek(&pool, &chain), expected);
    let mut out = vec![0; expected.len() + 10];
    assert_eq!(pool.pop_into(&mut chain, &mut out), expected.len());
    assert_eq!(out[..expected.len()], expected);
    assert!(chain.is_empty());
    assert_eq!(pool.in_use(), 0);
    assert_eq!(pool.pop_into(&mut chain, &mut out), 0);
}

#[test]
fn an_exhausted_pool_refuses_and_appends_nothing() {
    let mut pool = Pool::new(3);
    let room = pool.room();
    assert_eq!(room % BLOCK_LEN, 0);
    let (mut one, mut two) = (Chain::EMPTY, Chain::EMPTY);
    assert_eq!(pool.push(&mut one, &pattern(room + 1, 0)), Err(Exhausted));
    assert!(one.is_empty());
    assert_eq!(pool.in_use(), 0);
    pool.push(&mut one, &pattern(10, 1)).unwrap();
    assert_eq!(pool.push(&mut two, &pattern(room, 2)), Err(Exhausted));
    assert!(two.is_empty());
    pool.push(&mut two, &pattern(room - BLOCK_LEN, 3)).unwrap();
    assert_eq!(pool.room(), 0);
    // The last block of a chain has room of its own.
    pool.push(&mut one, &pattern(BLOCK_LEN - 10, 4)).unwrap();
    assert_eq!(pool.push(&mut one, &[1]), Err(Exhausted));
    assert_eq!(pool.push(&mut two, &[1]), Err(Exhausted));
    assert_eq!(pool.push(&mut one, &[]), Ok(()));
    assert_eq!(peek(&pool, &one), [pattern(10, 1), pattern(BLOCK_LEN - 10, 4)].concat());
    pool.clear(&mut one);
    assert_eq!(pool.room(), BLOCK_LEN);
    assert_eq!(pool.push(&mut two, &[1]), Ok(()));
    assert_eq!(peek(&pool, &two), [pattern(room - BLOCK_LEN, 3), vec![1]].concat());
    pool.clear(&mut two);
    assert_eq!((pool.room(), pool.in_use()), (room, 0));
}

#[test]
fn an_empty_push_takes_no_block() {
    let mut pool = Pool::new(1);
    let mut chain = Chain::EMPTY;
    pool.push(&mut chain, &[]).unwrap();
    assert_eq!(pool.in_use(), 0);
    let mut nothing = Pool::new(0);
    assert_eq!(nothing.push(&mut chain, &[]), Ok(()));
    assert_eq!(nothing.push(&mut chain, &[1]), Err(Exhausted));
    assert_eq!(nothing.room(), 0);
}

#[test]
fn memory_is_touched_on_demand() {
    let mut pool = Pool::new(1000);
    let mut chain = Chain::EMPTY;
    for _ in 0..50 {
        pool.push(&mut chain, &[7; 3 * BLOCK_LEN]).unwrap();
        pool.clear(&mut chain);
    }
    assert_eq!(pool.next.len(), 3, "freed blocks are used again before fresh ones");
    assert!(pool.memory[3 * BLOCK_LEN..].iter().all(|&b| b == 0));
}

#[test]
fn slices_stop_at_what_fits() {
    let mut pool = Pool::new(8);
    let mut chain = Chain::EMPTY;
    let bytes = pattern(5 * BLOCK_LEN + 100, 0);
    pool.push(&mut chain, &bytes).unwrap();
    pool.consume(&mut chain, 200);
    let mut slices = [IoSlice::new(&[]); 2];
    assert_eq!(pool.slices(&chain, &mut slices), 2);
    assert_eq!(joined(&slices), bytes[200..2 * BLOCK_LEN]);
    assert_eq!(pool.slices(&chain, &mut []), 0);
    assert_eq!(pool.slices(&Chain::EMPTY, &mut slices), 0);
    pool.clear(&mut chain);
}

#[test]
#[should_panic(expected = "a chain gives no more than it has")]
fn consuming_more_than_there_is_is_caller_misuse() {
    let mut pool = Pool::new(1);
    let mut chain = Chain::EMPTY;
    pool.push(&mut chain, &[1, 2]).unwrap();
    pool.consume(&mut chain, 3);
}

#[derive(Debug, Clone)]
enum Step {
    Push(usize),
    Pop(usize),
    Consume(usize),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![0..10_usize, 4090..4100_usize, 0..10_000_usize];
    prop_oneof![
        4 => len().prop_map(Step::Push),
        2 => len().prop_map(Step::Pop),
        2 => len().prop_map(Step::Consume),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn agrees_with_queues(steps in prop::collection::vec((0..3_usize, step()), 0..120)) {
        let mut pool = Pool::new(10);
        let blocks = pool.room() / BLOCK_LEN;
        let mut chains = [Chain::EMPTY, Chain::EMPTY, Chain::EMPTY];
        let mut models = [const { Vec::new() }; 3];
        for (n, (which, step)) in steps.into_iter().enumerate() {
            let (chain, model) = (&mut chains[which], &mut models[which]);
            match step {
                Step::Push(len) => {
                    let bytes = pattern(len, n as u8);
                    let room = pool.room();
                    match pool.push(chain, &bytes) {
                        Ok(()) => model.extend_from_slice(&bytes),
                        Err(Exhausted) => prop_assert!(len > room),
                    }
                }
                Step::Pop(len) => {
                    let mut out = vec![0; len];
                    let count = pool.pop_into(chain, &mut out);
                    prop_assert_eq!(count, len.min(model.len()));
                    prop_assert_eq!(&model[..count], &out[..count]);
                    model.drain(..count);
                }
                Step::Consume(len) => {
                    let len = len.min(model.len());
                    pool.consume(chain, len);
                    model.drain(..len);
                }
                Step::Clear => {
                    pool.clear(chain);
                    model.clear();
                }
            }
            let mut used = 0;
            for (chain, model) in chains.iter().zip(&models) {
                prop_assert_eq!(chain.len(), model.len());
                prop_assert_eq!(chain.is_empty(), model.is_empty());
                prop_assert!(peek(&pool, chain) == *model);
                used += (chain.len().div_ceil(BLOCK_LEN)..=chain.len().div_ceil(BLOCK_LEN) + 1)
                    .find(|&count| count * BLOCK_LEN >= chain.offset as usize + chain.len())
                    .unwrap();
            }
            prop_assert_eq!(pool.in_use(), used, "a block too many or too few");
            prop_assert_eq!(pool.room(), (blocks - used) * BLOCK_LEN);
        }
    }
}
