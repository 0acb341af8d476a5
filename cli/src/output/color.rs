//! Colours by role. Meaning is never carried by colour alone.

use owo_colors::Style;

use crate::args::ColorWhen;
use crate::env::Environment;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Title of a block.
    Header,
    /// Id of a commit.
    Id,
    /// Name of a branch or tag.
    Reference,
    /// Something that came.
    Added,
    /// Something that went.
    Removed,
    /// Something that changed.
    Changed,
    /// Place in a file.
    Position,
    /// Less important.
    Dim,
    /// `error:`.
    Error,
    /// `warning:`.
    Warning,
    /// `hint:`.
    Hint,
    /// A directory.
    Directory,
}

impl Role {
    fn style(self) -> Style {
        let style = Style::new();
        match self {
            Role::Header => style.bold(),
            Role::Id | Role::Changed => style.yellow(),
            Role::Reference | Role::Added => style.green(),
            Role::Removed => style.red(),
            Role::Position | Role::Hint => style.cyan(),
            Role::Dim => style.dimmed(),
            Role::Error => style.red().bold(),
            Role::Warning => style.yellow().bold(),
            Role::Directory => style.blue().bold(),
        }
    }
}

/// Whether one stream gets colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Palette {
    has_colors: bool,
}

impl Palette {
    /// Without colours.
    pub const PLAIN: Palette = Palette { has_colors: false };
    /// With colours.
    pub const COLORED: Palette = Palette { has_colors: true };

    /// Decides for a stream: the flag first, then the environment, then the terminal.
    pub fn choose(when: ColorWhen, environment: &Environment, is_terminal: bool) -> Self {
        let has_colors = match when {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto if environment.no_color => false,
            ColorWhen::Auto if environment.force_color => true,
            ColorWhen::Auto => is_terminal && !environment.is_dumb_terminal,
        };
        Self { has_colors }
    }

    /// `text` in the style of `role`.
    pub fn paint(self, role: Role, text: &str) -> String {
        if self.has_colors && !text.is_empty() {
            role.style().style(text).to_string()
        } else {
            text.to_owned()
        }
    }

    /// `bytes` in the style of `role`.
    pub fn paint_bytes(self, role: Role, bytes: &[u8]) -> Vec<u8> {
        if !self.has_colors || bytes.is_empty() {
            return bytes.to_vec();
        }
        let style = role.style();
        let mut painted = style.prefix_formatter().to_string().into_bytes();
        painted.extend_from_slice(bytes);
        painted.extend_from_slice(style.suffix_formatter().to_string().as_bytes());
        painted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_environment_and_that_over_the_terminal() {
        let plain = Environment::default();
        let no_color = Environment {
            no_color: true,
            force_color: true,
            ..Environment::default()
        };
        let forced = Environment {
            force_color: true,
            ..Environment::default()
        };
        let dumb = Environment {
            is_dumb_terminal: true,
            ..Environment::default()
        };
        for (when, environment, is_terminal, expected) in [
            (ColorWhen::Auto, &plain, true, true),
            (ColorWhen::Auto, &plain, false, false),
            (ColorWhen::Auto, &no_color, true, false),
            (ColorWhen::Auto, &forced, false, true),
            (ColorWhen::Auto, &dumb, true, false),
            (ColorWhen::Always, &no_color, false, true),
            (ColorWhen::Never, &forced, true, false),
        ] {
            let palette = Palette::choose(when, environment, is_terminal);
            assert_eq!(palette.has_colors, expected, "{when:?} {environment:?}");
        }
    }

    #[test]
    fn painted_bytes_are_between_escape_sequences() {
        assert_eq!(Palette::PLAIN.paint_bytes(Role::Added, b"+\xff"), b"+\xff");
        let painted = Palette::COLORED.paint_bytes(Role::Added, b"+\xff");
        assert_eq!(painted, b"\x1b[32m+\xff\x1b[0m");
    }
}
