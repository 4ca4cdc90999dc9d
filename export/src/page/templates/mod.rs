//! The templates, compiled into the program.

use std::sync::LazyLock;

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use crate::http::problem::Problem;
use crate::page::format;

const SOURCES: [(&str, &str); 11] = [
    ("base.html", include_str!("base.html")),
    ("fields.html", include_str!("fields.html")),
    ("export.html", include_str!("export.html")),
    ("history.html", include_str!("history.html")),
    ("activation.html", include_str!("activation.html")),
    ("device.html", include_str!("device.html")),
    ("links.html", include_str!("links.html")),
    ("callbacks.html", include_str!("callbacks.html")),
    ("requests.html", include_str!("requests.html")),
    ("sign-in.html", include_str!("sign-in.html")),
    ("problem.html", include_str!("problem.html")),
];

/// Escapes texts, as minijinja does in every template whose name ends with `.html`.
static TEMPLATES: LazyLock<Result<Environment<'static>, String>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    templates.set_trim_blocks(true);
    templates.set_lstrip_blocks(true);
    templates.add_filter("number", format::number);
    for (name, source) in SOURCES {
        templates.add_template(name, source).map_err(|error| format!("{error:#}"))?;
    }
    Ok(templates)
});

/// Renders a template.
///
/// # Errors
/// The template is wrong; the error is logged.
pub(super) fn render(name: &str, page: &impl Serialize) -> Result<String, Problem> {
    let rendered = TEMPLATES.as_ref().map_err(Clone::clone).and_then(|templates| {
        let rendered = templates.get_template(name).and_then(|template| template.render(page));
        rendered.map_err(|error| format!("{error:#}"))
    });
    rendered.map_err(|error| {
        tracing::error!(page = name, error, "rendering a page failed");
        Problem::page()
    })
}
