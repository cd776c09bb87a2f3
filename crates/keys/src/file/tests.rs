#![allow(clippy::unwrap_used, clippy::vec_init_then_push)] // A failing test panics; the macro pushes keys.

use sgs_keys::{KeyFile, KeyTable as _};

sgs_keys::table! {
    #[derive(Clone, Debug, PartialEq)]
    struct Course {
        /// A name.
        pub name: String = String::new(), in "a name",
        /// Its parts.
        pub part: Vec<Part>,
        /// Its room.
        pub room: Option<Room>,
    }
}

sgs_keys::table! {
    #[derive(Clone, Debug, PartialEq)]
    struct Part {
        /// Hours.
        pub hours: f64 = 1.0, in sgs_keys::above(0.0).at_most(9.0),
        /// Topics.
        pub topics: Vec<String> = Vec::new(), in "a list",
    }
}

sgs_keys::table! {
    #[derive(Clone, Debug, PartialEq)]
    struct Room {
        /// Seats.
        pub seats: u32 = 20, in 1..=500,
    }
}

fn read(text: &str) -> Result<Course, String> {
    let file = KeyFile::parse(text.to_owned(), "a.toml".to_owned()).map_err(|e| e.to_string())?;
    file.decode("list").map_err(|e| e.to_string())
}

#[test]
fn a_file_is_read_with_its_lists_of_tables() {
    let read = read("name = \"n\"\n[[part]]\nhours = 2\n[[part]]\ntopics = [\"t\"]\n[room]\n").unwrap();
    let first = Part { hours: 2.0, topics: Vec::new() };
    let second = Part { topics: vec!["t".to_owned()], ..Part::default() };
    let expected = Course { name: "n".to_owned(), part: vec![first, second], room: Some(Room::default()) };
    assert_eq!(read, expected);
    let default = |name: &str| Course::keys("").into_iter().find(|k| k.key == name).unwrap().default;
    assert_eq!(default("part[].hours"), Some(1.0.into()));
    assert_eq!(default("room.seats"), Some(20.into()));
}

#[test]
fn errors_name_file_line_and_key() {
    let part = "name = \"n\"\n\n[[part]]\nhours = 2\n[[part]]\n";
    let cases: [(&str, &str); 8] = [
        ("name = 3", "a.toml:1: `name` is 3; expected a name"),
        ("name = [\"n\"]", "a.toml:1: `name` is [\"n\"]; expected a name"),
        (
            &format!("{part}hours = 0"),
            "a.toml:6: `part[].hours` is 0.0; expected a number above 0, at most 9",
        ),
        (
            &format!("{part}hour = 1"),
            "a.toml:6: there is no key `part[].hour`; did you mean `part[].hours`? (`list` lists all)",
        ),
        ("\n[room]\nseats = 501", "a.toml:3: `room.seats` is 501; expected an integer from 1 to 500"),
        ("\nroom = 3", "a.toml:2: `room` must be a table, [room]"),
        ("part = 3", "a.toml:1: `part` must be a list of tables, [[part]]"),
        ("part = [1]", "a.toml:1: `part` must be a list of tables, [[part]]"),
    ];
    for (text, told) in cases {
        assert_eq!(read(text).unwrap_err(), told);
    }
    assert!(read("name = \"n\"\nname = \"m\"").unwrap_err().starts_with("a.toml:2: duplicate key"));
    assert!(read("\n[[part]]\ntopics = [1]").unwrap_err().starts_with("a.toml:3: invalid type"));
    let file = KeyFile::parse(part.to_owned(), "a.toml".to_owned()).unwrap();
    for (path, told) in
        [("part[1].topics", "a.toml:5: x"), ("part[0].hours", "a.toml:4: x"), ("room", "a.toml: x")]
    {
        assert_eq!(file.error(path, "x").to_string(), told);
    }
    let quoted = "[set]\na = 1\n\"part.b.c\" = 2\n[set.part.b]\nd = 3\n";
    let file = KeyFile::parse(quoted.to_owned(), "a.toml".to_owned()).unwrap();
    for (path, line) in [("set.part.b.c", 3), ("set.part.b.d", 5), ("set.a", 2), ("set.a.b", 2)] {
        assert_eq!(file.error(path, "x").to_string(), format!("a.toml:{line}: x"), "{path}");
    }
}

#[test]
fn a_missing_value_is_an_error_of_its_key() {
    let error = |text: &str| KeyFile::parse(text.to_owned(), "a.toml".to_owned()).unwrap_err().to_string();
    assert_eq!(error("rounds =\n"), "a.toml:1: a value is missing after `rounds =`");
    assert_eq!(error("a = 1\n[b]\n c.d = # none\ne = 2\n"), "a.toml:3: a value is missing after `c.d =`");
    for other in ["x = \"a = \n", "x = foo\n", "x = [1,\n", "= 5\n"] {
        assert!(!error(other).contains("missing after"), "{other}");
    }
}

#[test]
fn an_integer_that_is_too_large_is_an_error_of_its_key() {
    let text = "\n[part.a]\nx = [1, 99999999999999999999]\ny = -1_000_000_000_000_000_000_000\n";
    let file = KeyFile::parse(text.to_owned(), "a.toml".to_owned()).unwrap();
    assert_eq!(file.table["part"]["a"]["x"][1].as_float(), Some(1e20));
    assert_eq!(file.table["part"]["a"]["y"].as_float(), Some(-1e21));
    let many = format!("x = [{}]", "99999999999999999999, ".repeat(1000));
    for broken in ["x = 1 2", "x = 01", "x = +-1", "x = 1__0", "x = 2020-99", many.as_str()] {
        assert!(KeyFile::parse(broken.to_owned(), "a.toml".to_owned()).is_err(), "{broken}");
    }
}
