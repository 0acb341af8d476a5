//! The OpenAPI document, made from the same table as the router.

use computerd_api::v1::{ErrorBody, Event, Progress};
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathItem, Paths,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{Components, ObjectBuilder, Type};
use utoipa::openapi::{
    Content, ContentBuilder, Info, OpenApi, Ref, RefOr, Required, ResponseBuilder, Schema,
};
use utoipa::{PartialSchema, ToSchema};

/// The document while routes are added.
pub struct Document {
    paths: Paths,
    components: Components,
}

impl Document {
    /// A document without routes.
    pub fn new() -> Self {
        let mut document = Self {
            paths: Paths::new(),
            components: Components::new(),
        };
        document.add_schema::<ErrorBody>();
        document.add_schema::<Progress>();
        document
    }

    /// A route with JSON in both directions.
    pub fn quick<B: ToSchema, A: ToSchema>(&mut self, method: &str, path: &str, summary: &str) {
        let answer = Content::new(Some(self.add_schema::<A>()));
        let body = self.body::<B>(method);
        self.add(method, path, summary, body, "application/json", answer);
    }

    /// A route that answers with JSON lines.
    pub fn lines<B: ToSchema, A: ToSchema>(&mut self, path: &str, summary: &str) {
        self.add_schema::<A>();
        let answer = Content::new(Some(Event::<A>::schema()));
        self.add_nested::<Event<A>>();
        let body = self.body::<B>("post");
        self.add("post", path, summary, body, "application/jsonl", answer);
    }

    /// A route that answers with a file's bytes.
    pub fn bytes<B: ToSchema>(&mut self, path: &str, summary: &str) {
        let bytes = ObjectBuilder::new().schema_type(Type::String).build();
        let answer = Content::new(Some(RefOr::<Schema>::from(bytes)));
        let body = self.body::<B>("post");
        self.add(
            "post",
            path,
            summary,
            body,
            "application/octet-stream",
            answer,
        );
    }

    fn body<B: ToSchema>(&mut self, method: &str) -> Option<Content> {
        (method == "post").then(|| Content::new(Some(self.add_schema::<B>())))
    }

    fn add_nested<T: ToSchema>(&mut self) {
        let mut nested = Vec::new();
        T::schemas(&mut nested);
        for (name, schema) in nested {
            self.components.schemas.entry(name).or_insert(schema);
        }
    }

    fn add_schema<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.add_nested::<T>();
        let name = T::name().into_owned();
        self.components
            .schemas
            .entry(name.clone())
            .or_insert_with(T::schema);
        RefOr::Ref(Ref::from_schema_name(name))
    }

    fn add(
        &mut self,
        method: &str,
        path: &str,
        summary: &str,
        body: Option<Content>,
        answer_type: &str,
        answer: Content,
    ) {
        let error = ContentBuilder::new()
            .schema(Some(RefOr::<Schema>::Ref(Ref::from_schema_name(
                "ErrorBody",
            ))))
            .build();
        let mut operation = OperationBuilder::new()
            .summary(Some(summary))
            .response(
                "200",
                ResponseBuilder::new()
                    .description("Done")
                    .content(answer_type, answer)
                    .build(),
            )
            .response(
                "default",
                ResponseBuilder::new()
                    .description("What went wrong")
                    .content("application/json", error)
                    .build(),
            );
        for name in ["workspace", "name"] {
            if path.contains(&format!("{{{name}}}")) {
                operation = operation.parameter(
                    ParameterBuilder::new()
                        .name(name)
                        .parameter_in(ParameterIn::Path)
                        .required(Required::True)
                        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
                        .build(),
                );
            }
        }
        if let Some(content) = body {
            let body = RequestBodyBuilder::new()
                .required(Some(Required::True))
                .content("application/json", content)
                .build();
            operation = operation.request_body(Some(body));
        }
        let method = match method {
            "get" => HttpMethod::Get,
            "delete" => HttpMethod::Delete,
            _ => HttpMethod::Post,
        };
        let item = PathItem::new(method, operation.build());
        match self.paths.paths.get_mut(path) {
            Some(existing) => existing.merge_operations(item),
            None => {
                self.paths.paths.insert(path.to_owned(), item);
            }
        }
    }

    /// The finished document as text.
    pub fn finish(&self) -> String {
        let info = Info::new("computerd", computerd_api_version());
        let mut document = OpenApi::new(info, self.paths.clone());
        document.components = Some(self.components.clone());
        let mut text = document.to_pretty_json().unwrap_or_else(|error| {
            tracing::error!(%error, "encode the OpenAPI document");
            String::new()
        });
        text.push('\n');
        text
    }
}

fn computerd_api_version() -> &'static str {
    "1"
}

/// The whole document as text.
pub fn document_text() -> String {
    let mut api = super::Api {
        router: axum::Router::new(),
        daemon: None,
        document: Document::new(),
    };
    super::routes::add(&mut api);
    api.document.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/api/openapi.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == document_text(),
            "docs/api/openapi.json is out of date: run `computerd openapi > docs/api/openapi.json`"
        );
    }

    #[test]
    fn every_reference_has_its_schema() {
        let document: serde_json::Value = serde_json::from_str(&document_text()).unwrap();
        let mut references = Vec::new();
        collect(&document, &mut references);
        assert!(references.len() > 50);
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    fn collect(value: &serde_json::Value, references: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    match (key.as_str(), value.as_str()) {
                        ("$ref", Some(text)) => references.push(text.to_owned()),
                        _ => collect(value, references),
                    }
                }
            }
            serde_json::Value::Array(values) => {
                values.iter().for_each(|value| collect(value, references));
            }
            _ => {}
        }
    }
}
