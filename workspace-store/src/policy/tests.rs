//! The engine against a matcher that follows the definition word by word.

use proptest::prelude::*;

use super::*;

fn rule(pattern: &str, access: Access) -> Rule {
    Rule {
        pattern: Pattern::parse(pattern.as_bytes()).unwrap(),
        access,
        until: None,
        is_own: true,
    }
}

fn group_rule(pattern: &str, access: Access) -> Rule {
    Rule {
        is_own: false,
        ..rule(pattern, access)
    }
}

fn policy(rules: &[(&str, Access)]) -> Policy {
    let rules = rules
        .iter()
        .map(|(pattern, access)| rule(pattern, *access))
        .collect();
    Policy::compile(rules, Access::Hidden, Timestamp::default())
}

use Access::{Hidden, Read, Write};

#[test]
fn the_examples_of_the_documentation() {
    let demo = policy(&[
        ("/", Read),
        ("docs/**", Write),
        ("*.key", Hidden),
        ("docs/public.key", Read),
        ("secrets", Hidden),
        ("*.md", Write),
    ]);
    for (path, access) in [
        ("", Read),
        ("src/main.rs", Read),
        ("docs", Read),
        ("docs/a/b", Write),
        ("docs/a.key", Hidden),
        ("docs/a.key/inside", Hidden),
        ("docs/public.key", Read),
        ("deep/down/id.key", Hidden),
        ("secrets/notes.md", Hidden),
        ("src/secrets/x", Hidden),
        ("src/notes.md", Write),
    ] {
        assert_eq!(demo.access(path.as_bytes()), access, "{path}");
    }
    assert!(demo.place(b"secrets").is_uniform());
    assert!(!demo.place(b"secrets").is_passage());
    assert!(!demo.place(b"src").is_uniform());
}

#[test]
fn what_a_merge_put_beside_a_path_is_as_hidden_as_the_path() {
    let demo = policy(&[
        ("/", Write),
        ("*.key", Hidden),
        ("docs", Read),
        ("*.theirs-0badcafe", Hidden),
    ]);
    for (path, access) in [
        ("id.key.theirs-0123abcd", Hidden),
        ("id.key.theirs-0123abcd-2", Hidden),
        ("id.key.theirs-0123abcd/in/it", Hidden),
        ("id.key.theirs-0123abcd.theirs-89abcdef", Hidden),
        ("docs.theirs-0123abcd/a", Read),
        ("plain.theirs-0123abcd", Write),
        ("plain.theirs-0badcafe", Hidden),
        // Not made by a merge.
        ("id.key.theirs-0123", Write),
        ("id.key.theirs-0123abcd.txt", Write),
        (".theirs-0123abcd", Write),
    ] {
        assert_eq!(demo.access(path.as_bytes()), access, "{path}");
    }
}

#[test]
fn a_hidden_directory_with_something_visible_in_it_is_a_passage() {
    let demo = policy(&[("a/b/c", Read)]);
    assert!(demo.root().is_passage());
    assert!(demo.place(b"a").is_passage());
    assert!(demo.place(b"a/b").is_passage());
    assert!(demo.place(b"a/b/c").is_uniform());
    assert_eq!(demo.access(b"a/b/c/d"), Read);
    let other = demo.place(b"a/x");
    assert!(other.is_uniform() && !other.is_passage() && other.access() == Hidden);
}

#[test]
fn own_rules_beat_those_of_groups_only_with_the_same_pattern() {
    let compile = |rules: Vec<Rule>| Policy::compile(rules, Hidden, Timestamp::default());
    let same = compile(vec![group_rule("docs/**", Hidden), rule("docs/*", Write)]);
    assert_eq!(same.access(b"docs/a"), Write);
    let narrower = compile(vec![group_rule("docs/a", Hidden), rule("docs/**", Write)]);
    assert_eq!(narrower.access(b"docs/a"), Hidden);
    let groups = compile(vec![group_rule("docs", Read), group_rule("docs", Write)]);
    assert_eq!(groups.access(b"docs"), Read);
}

#[test]
fn rules_end_at_their_time() {
    let at = |seconds| Timestamp {
        seconds,
        nanoseconds: 0,
    };
    let mut ends = rule("/", Write);
    ends.until = Some(at(10));
    let rules = vec![ends, rule("/a", Read)];
    let before = Policy::compile(rules.clone(), Hidden, at(9));
    assert_eq!(before.access(b"b"), Write);
    assert_eq!(before.next_expiry(), Some(at(10)));
    let after = Policy::compile(rules, Hidden, at(10));
    assert_eq!(after.access(b"b"), Hidden);
    assert_eq!(after.next_expiry(), None);
}

#[test]
fn what_other_programs_read_differently_is_refused() {
    for text in [
        "", "!a", "a//b", "//", "a/../b", ".", "[ab]", "a**", "**b", "a\\", "a\0b", "\\./\\.",
    ] {
        assert!(Pattern::parse(text.as_bytes()).is_err(), "{text:?}");
    }
    let literal = policy(&[("\\[id\\].js", Read), ("\\*", Read)]);
    assert_eq!(literal.access(b"[id].js"), Read);
    assert_eq!(literal.access(b"*"), Read);
    assert_eq!(literal.access(b"x"), Hidden);
}

#[test]
fn a_step_costs_little_with_a_thousand_patterns() {
    let mut rules = vec![rule("/", Read)];
    for number in 0..500 {
        rules.push(rule(&format!("*.secret{number}"), Hidden));
        rules.push(rule(&format!("area{number}/sub*/x{number}"), Write));
    }
    let policy = Policy::compile(rules, Hidden, Timestamp::default());
    let directory = policy.place(b"area7/sub7");
    let started = std::time::Instant::now();
    for number in 0..100_000 {
        let place = policy.step(&directory, format!("file{number}.rs").as_bytes());
        assert_eq!(place.access(), Read);
    }
    // A thousand patterns tried one by one would take some 10 µs in a release build.
    assert!(
        started.elapsed().as_micros() < 1_000_000,
        "{:?}",
        started.elapsed()
    );
    assert_eq!(policy.access(b"area7/sub7/x7/a"), Write);
    assert_eq!(policy.access(b"area7/sub7/x8/a.secret9"), Hidden);
}

/// The definition, with a matcher of patterns that is as plain as can be.
fn naive_access(rules: &[(String, Rule)], path: &[&str]) -> Access {
    let covering: Vec<&Rule> = rules
        .iter()
        .filter(|(text, _)| naive_covers(text, path))
        .map(|(_, rule)| rule)
        .collect();
    covering
        .iter()
        .filter(|rule| !covering.iter().any(|other| other.overrules(rule)))
        .map(|rule| rule.access)
        .min()
        .unwrap_or(Hidden)
}

fn naive_covers(text: &str, path: &[&str]) -> bool {
    let mut parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().all(|part| *part == "**") {
        return true;
    }
    if !text.contains('/') {
        parts.insert(0, "**");
    }
    (0..=path.len()).any(|end| naive_path(&parts, &path[..end]))
}

fn naive_path(parts: &[&str], path: &[&str]) -> bool {
    match parts {
        [] => path.is_empty(),
        ["**"] => !path.is_empty(),
        ["**", rest @ ..] => (0..=path.len()).any(|skip| naive_path(rest, &path[skip..])),
        [part, rest @ ..] => {
            !path.is_empty()
                && naive_name(part.as_bytes(), path[0].as_bytes())
                && naive_path(rest, &path[1..])
        }
    }
}

fn naive_name(form: &[u8], name: &[u8]) -> bool {
    match form {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|skip| naive_name(rest, &name[skip..])),
        [b'?', rest @ ..] => !name.is_empty() && naive_name(rest, &name[1..]),
        [byte, rest @ ..] => name.first() == Some(byte) && naive_name(rest, &name[1..]),
    }
}

fn pattern_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => "[ab]{1,2}",
        2 => "[ab]?[*?][ab]?",
        1 => Just("*".to_owned()),
        2 => Just("**".to_owned()),
    ];
    (any::<bool>(), proptest::collection::vec(part, 1..4)).prop_map(|(is_anchored, parts)| {
        let text = parts.join("/");
        if is_anchored {
            format!("/{text}")
        } else {
            text
        }
    })
}

fn rules() -> impl Strategy<Value = Vec<(String, Rule)>> {
    let access = prop_oneof![Just(Hidden), Just(Read), Just(Write)];
    let one = (pattern_text(), access, any::<bool>()).prop_map(|(text, access, is_own)| {
        let rule = Rule {
            pattern: Pattern::parse(text.as_bytes()).unwrap(),
            access,
            until: None,
            is_own,
        };
        (text, rule)
    });
    proptest::collection::vec(one, 0..8)
}

fn path() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[ab]{1,3}", 0..5)
}

/// All paths of up to `depth` more names below `path`, over a few names.
fn below(path: &[u8], depth: usize) -> Vec<Vec<u8>> {
    if depth == 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in ["a", "b", "ab", "ba", "aa", "z"] {
        let path = crate::path::join_path(path, name.as_bytes());
        found.extend(below(&path, depth - 1));
        found.push(path);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_automaton_decides_as_the_definition_says(rules in rules(), paths in proptest::collection::vec(path(), 8)) {
        let compiled = rules.iter().map(|(_, rule)| rule.clone()).collect();
        let policy = Policy::compile(compiled, Hidden, Timestamp::default());
        for names in paths {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let path = names.join("/");
            let expected = naive_access(&rules, &names);
            prop_assert_eq!(policy.access(path.as_bytes()), expected, "{}", path);
            for (text, rule) in &rules {
                prop_assert_eq!(rule.pattern.covers(path.as_bytes()), naive_covers(text, &names), "{} {}", text, path);
            }
            let deciding = policy.deciding_rules(path.as_bytes());
            let by_rules = deciding.iter().map(|rule| policy.rules()[*rule].access).min();
            prop_assert_eq!(by_rules.unwrap_or(Hidden), expected);
        }
    }

    #[test]
    fn a_pattern_within_another_covers_no_path_that_the_other_does_not(
        narrow in pattern_text(), wide in pattern_text(), paths in proptest::collection::vec(path(), 32)
    ) {
        let [narrow, wide] = [narrow, wide].map(|text| Pattern::parse(text.as_bytes()).unwrap());
        prop_assert!(narrow.is_within(&narrow));
        if narrow.is_within(&wide) {
            for names in paths {
                let path = names.join("/");
                prop_assert!(!narrow.covers(path.as_bytes()) || wide.covers(path.as_bytes()), "{}", path);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn uniform_and_passage_are_true_of_everything_below(rules in rules(), path in path()) {
        let compiled = rules.into_iter().map(|(_, rule)| rule).collect();
        let policy = Policy::compile(compiled, Hidden, Timestamp::default());
        let path = path.join("/");
        let place = policy.place(path.as_bytes());
        for below in below(path.as_bytes(), 3) {
            let access = policy.access(&below);
            if place.is_uniform() {
                prop_assert_eq!(access, place.access());
            }
            if place.access() == Hidden && !place.is_passage() {
                prop_assert_eq!(access, Hidden);
            }
        }
    }
}
