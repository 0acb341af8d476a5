//! Makes text harmless for a terminal. Names and contents are chosen by whoever wrote them, and
//! a terminal obeys control characters.

/// `bytes` with control characters, bidirectional overrides and broken UTF-8 as escapes.
/// Newlines and tabs are escaped too; see [`sanitize_text`] for text of several lines.
pub fn sanitize(bytes: &[u8]) -> String {
    escape(bytes, false)
}

/// Like [`sanitize`], but newlines and tabs stay.
pub fn sanitize_text(bytes: &[u8]) -> String {
    escape(bytes, true)
}

fn escape(bytes: &[u8], keep_layout: bool) -> String {
    let mut clean = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' | '\t' if keep_layout => clean.push(c),
                '\n' => clean.push_str("\\n"),
                '\t' => clean.push_str("\\t"),
                '\r' => clean.push_str("\\r"),
                c if c.is_control() && c.is_ascii() => {
                    clean.push_str(&format!("\\x{:02x}", u32::from(c)));
                }
                c if c.is_control() || is_invisible(c) => {
                    clean.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
                }
                c => clean.push(c),
            }
        }
        for byte in chunk.invalid() {
            clean.push_str(&format!("\\x{byte:02x}"));
        }
    }
    clean
}

/// Characters that reorder or hide what follows them.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
            | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_text_stays() {
        assert_eq!(sanitize("grün/日本 🦀.txt".as_bytes()), "grün/日本 🦀.txt");
    }

    #[test]
    fn whatever_a_terminal_obeys_is_escaped() {
        assert_eq!(sanitize(b"a\x1b]0;x\x07b"), "a\\x1b]0;x\\x07b");
        assert_eq!(sanitize(b"line\nnext\r\t"), "line\\nnext\\r\\t");
        assert_eq!(sanitize("\u{9b}31m".as_bytes()), "\\u{9b}31m");
        assert_eq!(sanitize("\u{202e}gpj".as_bytes()), "\\u{202e}gpj");
        assert_eq!(sanitize(b"\xff\x7f"), "\\xff\\x7f");
    }

    #[test]
    fn text_keeps_its_lines() {
        assert_eq!(sanitize_text(b"a\tb\nc\x1b[2J"), "a\tb\nc\\x1b[2J");
    }
}
