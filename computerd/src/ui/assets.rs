//! The files of the page, as they are in the program.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type and content of each file.
const FILES: &[(&str, &str, &str)] = &[
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("page/index.html"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("page/page.css"),
    ),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    ("/app.js", SCRIPT, include_str!("page/app.js")),
    ("/api.js", SCRIPT, include_str!("page/api.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/text.js", SCRIPT, include_str!("page/text.js")),
    ("/theme.js", SCRIPT, include_str!("page/theme.js")),
    ("/timeline.js", SCRIPT, include_str!("page/timeline.js")),
    ("/details.js", SCRIPT, include_str!("page/details.js")),
    ("/changes.js", SCRIPT, include_str!("page/changes.js")),
    ("/file.js", SCRIPT, include_str!("page/file.js")),
    ("/run.js", SCRIPT, include_str!("page/run.js")),
    ("/revert.js", SCRIPT, include_str!("page/revert.js")),
];

/// Routes of all files.
pub fn routes() -> Router {
    FILES
        .iter()
        .fold(Router::new(), |router, (path, kind, content)| {
            router.route(
                path,
                get(async move || ([(header::CONTENT_TYPE, *kind)], *content).into_response()),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_page_is_served() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ui/page");
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| format!("/{}", entry.unwrap().file_name().to_string_lossy()))
            .map(|name| name.replace("/index.html", "/"))
            .collect();
        names.sort();
        let mut served: Vec<_> = FILES.iter().map(|(path, ..)| (*path).to_owned()).collect();
        served.sort();
        assert_eq!(names, served);
    }

    #[test]
    fn the_page_writes_no_markup_and_asks_nobody_else() {
        for (path, _, content) in FILES {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "https://",
                "style=\"",
                "onclick=",
            ] {
                assert!(!content.contains(word), "{path}: {word}");
            }
        }
    }
}
