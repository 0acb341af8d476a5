//! `principal`, `group`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use computerd_api::v1::{
    CreatePrincipal, CreateToken, GroupChange, GroupList, PrincipalKind, PrincipalState, TokenQuery,
};

use crate::args::principal::{
    GroupArgs, GroupCommand, KindOfPrincipal, PrincipalCommand, PrincipalsArgs, TokenCommand,
    TokenCreateArgs,
};
use crate::context::Context;
use crate::error::{CommandError, Result};
use crate::output::sanitize::sanitize;
use crate::output::table::TextTable;
use crate::output::time;

fn text(text: &str) -> String {
    sanitize(text.as_bytes())
}

/// Makes, lists and disables principals.
pub async fn principal(context: &Context<'_>, arguments: PrincipalsArgs) -> Result<()> {
    match arguments.command {
        PrincipalCommand::Add(arguments) => {
            let request = CreatePrincipal {
                name: arguments.principal,
                kind: match arguments.kind {
                    KindOfPrincipal::Person => PrincipalKind::Person,
                    KindOfPrincipal::Agent => PrincipalKind::Agent,
                    KindOfPrincipal::Service => PrincipalKind::Service,
                },
            };
            let made = context.client().await?.add_principal(&request).await?;
            if context.printer.is_json() {
                return context.printer.json("principal", &made);
            }
            context.printer.note(format!(
                "{} is known; it sees nothing until `kura grant NAME {} PATTERN ACCESS`",
                text(&made.name),
                text(&made.name)
            ));
            Ok(())
        }
        PrincipalCommand::List(_) => list(context).await,
        PrincipalCommand::Disable(arguments) => set_state(context, arguments.principal, true).await,
        PrincipalCommand::Enable(arguments) => set_state(context, arguments.principal, false).await,
        PrincipalCommand::Token(arguments) => match arguments.command {
            TokenCommand::Create(arguments) => create_token(context, arguments).await,
            TokenCommand::List(arguments) => tokens(context, arguments.principal).await,
            TokenCommand::Revoke(arguments) => revoke_token(context, &arguments.id).await,
        },
    }
}

async fn list(context: &Context<'_>) -> Result<()> {
    let list = context.client().await?.principals().await?;
    if context.printer.is_json() {
        return context.printer.json("principals", &list);
    }
    let mut table = TextTable::new(&["PRINCIPAL", "KIND", "STATE", "GROUPS", "CREATED"]);
    for principal in &list.principals {
        let kind = match principal.kind {
            PrincipalKind::Person => "person",
            PrincipalKind::Agent => "agent",
            PrincipalKind::Service => "service",
        };
        let state = match principal.disabled {
            Some(_) => "disabled",
            None => "enabled",
        };
        table.row([
            text(&principal.name),
            kind.to_owned(),
            state.to_owned(),
            text(&principal.groups.join(",")),
            time::relative(&principal.created, context.now()),
        ]);
    }
    context.printer.write(table.render())
}

async fn set_state(context: &Context<'_>, name: String, is_disabled: bool) -> Result<()> {
    let request = PrincipalState { name, is_disabled };
    let client = context.client().await?;
    let changed = client.set_principal_state(&request).await?;
    if context.printer.is_json() {
        return context.printer.json("principal", &changed);
    }
    let name = text(&changed.name);
    context.printer.note(if is_disabled {
        format!("{name} may do nothing any more; undo: kura principal enable {name}")
    } else {
        format!("{name} is enabled; undo: kura principal disable {name}")
    });
    Ok(())
}

async fn create_token(context: &Context<'_>, arguments: TokenCreateArgs) -> Result<()> {
    let now = context.now();
    let request = CreateToken {
        principal: arguments.principal,
        expires: arguments
            .expires
            .map(|text| time::parse_end(&text, now))
            .transpose()?,
    };
    // Before the token is made: a secret that can't be written down is lost.
    let file = arguments.output.as_deref().map(create_secret).transpose()?;
    let client = context.client().await?;
    let made = client.create_token(&request).await;
    if let (Err(_), Some(path)) = (&made, &arguments.output) {
        let _ = std::fs::remove_file(path);
    }
    let mut made = made?;
    if let (Some(mut file), Some(path)) = (file, &arguments.output) {
        writeln!(file, "{}", made.secret)
            .and_then(|()| file.sync_all())
            .map_err(|error| CommandError::io(format!("write {}", path.display()), &error))?;
        made.secret = String::new();
    }
    if context.printer.is_json() {
        return context.printer.json("token", &made);
    }
    let end = match &made.expires {
        Some(expires) => format!("until {}", time::absolute(expires)),
        None => "until it is revoked".to_owned(),
    };
    context.printer.note(format!(
        "token {} of {}, good {end}; end it with: kura principal token revoke {}",
        made.id,
        text(&made.principal),
        made.id
    ));
    match &arguments.output {
        Some(path) => {
            context
                .printer
                .note(format!("its secret is in {}", path.display()));
            Ok(())
        }
        None => context.printer.line(&made.secret),
    }
}

fn create_secret(path: &Path) -> Result<std::fs::File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| CommandError::io(format!("create {}", path.display()), &error))
}

async fn tokens(context: &Context<'_>, principal: Option<String>) -> Result<()> {
    let client = context.client().await?;
    let list = client.tokens(&TokenQuery { principal }).await?;
    if context.printer.is_json() {
        return context.printer.json("tokens", &list);
    }
    let mut table = TextTable::new(&["TOKEN", "PRINCIPAL", "STATE", "EXPIRES", "LAST USED"]);
    for token in &list.tokens {
        let state = match (&token.revoked, token.is_good) {
            (Some(_), _) => "revoked",
            (None, true) => "good",
            (None, false) => "not good",
        };
        let or_never =
            |at: &Option<String>| at.as_deref().map_or("never".to_owned(), time::absolute);
        table.row([
            text(&token.id),
            text(&token.principal),
            state.to_owned(),
            or_never(&token.expires),
            or_never(&token.last_used),
        ]);
    }
    context.printer.write(table.render())
}

async fn revoke_token(context: &Context<'_>, id: &str) -> Result<()> {
    let revoked = context.client().await?.revoke_token(id).await?;
    if context.printer.is_json() {
        return context.printer.json("token_revoked", &revoked);
    }
    context.printer.note(format!(
        "token {} of {} is good no more",
        text(&revoked.id),
        text(&revoked.principal)
    ));
    Ok(())
}

/// Lists groups and changes who is in them.
pub async fn group(context: &Context<'_>, arguments: GroupArgs) -> Result<()> {
    let client = context.client().await?;
    let change = match arguments.command {
        GroupCommand::List(_) => return print_groups(context, &client.groups().await?),
        GroupCommand::Add(arguments) => GroupChange {
            name: arguments.group,
            add: arguments.principals,
            remove: Vec::new(),
        },
        GroupCommand::Remove(arguments) => GroupChange {
            name: arguments.group,
            add: Vec::new(),
            remove: arguments.principals,
        },
    };
    print_groups(context, &client.change_group(&change).await?)
}

fn print_groups(context: &Context<'_>, list: &GroupList) -> Result<()> {
    if context.printer.is_json() {
        return context.printer.json("groups", list);
    }
    let mut table = TextTable::new(&["GROUP", "MEMBERS"]);
    for group in &list.groups {
        table.row([text(&group.name), text(&group.members.join(","))]);
    }
    context.printer.write(table.render())
}
