//! `config`.

use computerd_api::v1::{ConfigChange, ConfigOrigin, ErrorKind};

use crate::args::config::{ConfigArgs, ConfigCommand, ConfigListArgs};
use crate::context::Context;
use crate::error::{CommandError, Result};
use crate::output::sanitize::sanitize;
use crate::output::table::TextTable;

/// Shows and changes settings.
pub async fn config(context: &Context<'_>, arguments: ConfigArgs) -> Result<()> {
    match arguments.command {
        ConfigCommand::List(arguments) => list(context, arguments).await,
        ConfigCommand::Get(arguments) => {
            get(
                context,
                arguments.scope.workspace.as_deref(),
                &arguments.key,
            )
            .await
        }
        ConfigCommand::Set(arguments) => {
            let change = ConfigChange {
                key: arguments.key,
                value: Some(arguments.value),
                principal: arguments.principal.principal,
            };
            set(context, &arguments.workspace, &change).await
        }
        ConfigCommand::Unset(arguments) => {
            let change = ConfigChange {
                key: arguments.key,
                value: None,
                principal: arguments.principal.principal,
            };
            set(context, &arguments.workspace, &change).await
        }
    }
}

async fn list(context: &Context<'_>, arguments: ConfigListArgs) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let list = client.config(arguments.scope.workspace.as_deref()).await?;
    if printer.is_json() {
        return printer.json("config", &list);
    }
    let text = |text: &str| sanitize(text.as_bytes());
    if arguments.origin {
        let mut table = TextTable::new(&["KEY", "VALUE", "ORIGIN", "DESCRIPTION"]);
        for setting in &list.settings {
            table.row([
                text(&setting.key),
                text(&setting.value),
                origin_name(setting.origin).to_owned(),
                text(&setting.description),
            ]);
        }
        return printer.write(table.render());
    }
    let mut table = TextTable::new(&["KEY", "VALUE"]);
    for setting in &list.settings {
        table.row([text(&setting.key), text(&setting.value)]);
    }
    printer.write(table.render())
}

async fn get(context: &Context<'_>, workspace: Option<&str>, key: &str) -> Result<()> {
    let printer = context.printer;
    let list = context.client().await?.config(workspace).await?;
    let Some(setting) = list.settings.iter().find(|setting| setting.key == key) else {
        return Err(CommandError::with_hint(
            ErrorKind::NotFound,
            format!("there is no setting '{}'", sanitize(key.as_bytes())),
            "`kura config list --origin` lists them",
        ));
    };
    if printer.is_json() {
        return printer.json("setting", setting);
    }
    printer.line(sanitize(setting.value.as_bytes()))
}

async fn set(context: &Context<'_>, workspace: &str, change: &ConfigChange) -> Result<()> {
    let printer = context.printer;
    let client = context.client().await?;
    let changed = client.set_config(workspace, change).await?;
    if printer.is_json() {
        return printer.json("setting_changed", &changed);
    }
    printer.note(format!(
        "{} = {} ({})",
        changed.setting.key,
        sanitize(changed.setting.value.as_bytes()),
        origin_name(changed.setting.origin)
    ));
    printer.operation(changed.operation.as_ref());
    Ok(())
}

fn origin_name(origin: ConfigOrigin) -> &'static str {
    match origin {
        ConfigOrigin::Default => "default",
        ConfigOrigin::Store => "store",
        ConfigOrigin::Workspace => "workspace",
        ConfigOrigin::Environment => "environment",
        ConfigOrigin::Flag => "flag",
    }
}
