use proptest::prelude::*;

use super::*;

const GPU: usize = 9;

fn vec(amounts: &[(usize, i64)]) -> ResourceVec {
    amounts.iter().map(|&(index, amount)| (ResourceId::from_index(index), amount)).collect()
}

fn any_vec() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(prop_oneof![Just(0), -20i64..20, Just(i64::MAX), Just(i64::MIN)], 0..12)
}

fn from_slice(amounts: &[i64]) -> ResourceVec {
    vec(&amounts.iter().copied().enumerate().collect::<Vec<_>>())
}

#[test]
fn trailing_zeros_change_neither_equality_nor_hash() {
    let mut roomy =
        vec![(0, 5), (GPU, 1)].into_iter().map(|(i, a)| (ResourceId::from_index(i), a)).collect::<ResourceVec>();
    roomy.set(ResourceId::from_index(GPU), 0);
    assert_eq!(roomy, vec(&[(0, 5)]));
    assert!(vec(&[(GPU, 0)]).is_zero());
}

#[test]
fn what_is_not_requested_fits_even_where_there_is_less_than_nothing() {
    let node = vec(&[(0, 1000), (1, -5)]);
    assert!(vec(&[(0, 1000)]).fits_in(&node));
    assert!(vec(&[(0, 1000), (1, 0), (GPU, -3)]).fits_in(&node));
    assert!(!vec(&[(0, 1001)]).fits_in(&node));
    assert!(!vec(&[(1, 1)]).fits_in(&node));
    assert!(!vec(&[(GPU, 1)]).fits_in(&node));
}

#[test]
fn what_does_not_fit_is_named_by_name_not_by_id() {
    let mut interner = Interner::new();
    let zebra = interner.resource("example.com/zebra");
    let apple = interner.resource("example.com/apple");
    let asked: ResourceVec = [(zebra, 1), (apple, 1), (ResourceId::CPU, 1)].into_iter().collect();
    let total: ResourceVec = [(ResourceId::CPU, 1)].into_iter().collect();
    assert_eq!(asked.exceeding(&total).collect::<Vec<_>>(), [zebra, apple]);
    assert_eq!(asked.first_exceeding(&total, &interner), Some(apple));
    assert_eq!(asked.first_exceeding(&asked, &interner), None);
}

#[test]
fn cpu_is_counted_in_thousandths_and_everything_rounded_up() {
    let mut interner = Interner::new();
    let gpu = interner.resource("nvidia.com/gpu");
    let mut amounts = ResourceVec::new();
    for (resource, text) in [(ResourceId::CPU, "1.0001"), (ResourceId::MEMORY, "1.5Gi"), (gpu, "2")] {
        amounts.set_quantity(resource, &Quantity::parse(text).unwrap()).unwrap();
    }
    assert_eq!(amounts.get(ResourceId::CPU), 1001);
    assert_eq!(amounts.get(ResourceId::MEMORY), 1536 << 20);
    assert_eq!(amounts.display(&interner).to_string(), "cpu: 1001m, memory: 1536Mi, nvidia.com/gpu: 2");
    let too_much = Quantity::parse("9223372036854775807").unwrap();
    assert_eq!(amounts.set_quantity(ResourceId::CPU, &too_much), Err(quantity::Error::OutOfRange));
    assert_eq!(amounts.get(ResourceId::CPU), 1001);
}

#[test]
fn how_often_a_request_fits_is_bounded_by_the_scarcest_resource() {
    let node = vec(&[(0, 1000), (1, 70), (2, -1)]);
    assert_eq!(vec(&[(0, 300), (1, 30)]).times_in(&node, 100), 2);
    assert_eq!(vec(&[(0, 100)]).times_in(&node, 7), 7);
    assert_eq!(vec(&[(2, 1)]).times_in(&node, 7), 0);
    assert_eq!(vec(&[]).times_in(&node, 7), 7);
    assert_eq!(vec(&[(0, 1)]).times_in(&vec(&[(0, i64::MAX)]), u32::MAX), u32::MAX);
}

proptest! {
    #[test]
    fn arithmetic_works_resource_by_resource(a in any_vec(), b in any_vec(), count in 0i64..5) {
        let at = |amounts: &[i64], index: usize| amounts.get(index).copied().unwrap_or(0);
        let all = 0..12usize;
        let (vec_a, vec_b) = (from_slice(&a), from_slice(&b));

        let checked = |result: Result<ResourceVec, Overflow>, op: &dyn Fn(i64, i64) -> Option<i64>| {
            let expected: Option<Vec<i64>> = all.clone().map(|index| op(at(&a, index), at(&b, index))).collect();
            match (result, expected) {
                (Ok(result), Some(expected)) => result == from_slice(&expected),
                (Err(overflow), None) => {
                    let index = overflow.resource.index();
                    op(at(&a, index), at(&b, index)).is_none()
                }
                _ => false,
            }
        };
        let apply = |op: &dyn Fn(&mut ResourceVec) -> Result<(), Overflow>| {
            let mut result = vec_a.clone();
            let outcome = op(&mut result);
            // A failed operation changes nothing.
            assert!(outcome.is_ok() || result == vec_a);
            outcome.map(|()| result)
        };
        prop_assert!(checked(apply(&|v| v.checked_add_assign(&vec_b)), &i64::checked_add));
        prop_assert!(checked(apply(&|v| v.checked_sub_assign(&vec_b)), &i64::checked_sub));
        let add_multiple = |a: i64, b: i64| b.checked_mul(count).and_then(|product| a.checked_add(product));
        prop_assert!(checked(apply(&|v| v.checked_add_multiple(&vec_b, count)), &add_multiple));

        type Infallible = (fn(&mut ResourceVec, &ResourceVec), fn(i64, i64) -> i64);
        let infallible: [Infallible; 4] = [
            (ResourceVec::saturating_add_assign, i64::saturating_add),
            (ResourceVec::saturating_sub_assign, i64::saturating_sub),
            (ResourceVec::max_assign, i64::max),
            (ResourceVec::min_assign, i64::min),
        ];
        for (op, expected) in infallible {
            let mut result = vec_a.clone();
            op(&mut result, &vec_b);
            let expected: Vec<i64> = all.clone().map(|index| expected(at(&a, index), at(&b, index))).collect();
            prop_assert_eq!(result, from_slice(&expected));
        }

        let fits = all.clone().all(|index| at(&a, index) <= 0 || at(&a, index) <= at(&b, index));
        prop_assert_eq!(vec_a.fits_in(&vec_b), fits);
        prop_assert_eq!(vec_a.exceeding(&vec_b).next().is_none(), fits);
        prop_assert_eq!(vec_a.has_negative(), a.iter().any(|&amount| amount < 0));
        prop_assert_eq!(vec_a.is_zero(), a.iter().all(|&amount| amount == 0));
    }

    #[test]
    fn n_times_fits_exactly_up_to_the_count_given(a in any_vec(), b in any_vec(), limit in 0u32..50) {
        let (request, total) = (from_slice(&a), from_slice(&b));
        let times = request.times_in(&total, limit);
        let fits = |count: u32| {
            a.iter().enumerate().all(|(index, &amount)| {
                amount <= 0 || i128::from(amount) * i128::from(count) <= i128::from(b.get(index).copied().unwrap_or(0).max(0))
            })
        };
        prop_assert!(times <= limit && fits(times));
        prop_assert!(times == limit || !fits(times + 1));
    }
}
