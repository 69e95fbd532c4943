-- lives-with: 1
-- Who may do what: {role} works on the tables through row-level security and never goes round it.
-- Where this login may make no roles, the owner works, and the policies are forced on it too.

do $$
begin
    if not exists (select from pg_roles where rolname = '{role}')
        and (select rolsuper or rolcreaterole from pg_roles where rolname = current_user)
    then
        create role {role} nologin nosuperuser nobypassrls;
    end if;
    revoke all on all routines in schema {schema} from public;
    if exists (select from pg_roles where rolname = '{role}') then
        grant usage on schema {schema} to {role};
        grant select on {schema}.migrations to {role};
        grant select, insert, update, delete on {schema}.heads, {schema}.events, {schema}.seen,
            {schema}.blobs, {schema}.side, {schema}.erased, {schema}.unindexed to {role};
        grant execute on all routines in schema {schema} to {role};
    end if;
exception when duplicate_object then
    raise exception 'another program makes the role {role} in this moment; open the store again';
end $$;
