-- lives-with: 1
-- The tables. {schema} and {role} are put in by schema.py; nothing here depends on a search path.
--
-- `sid` is a hash of tenant and session: a session's rows are found without asking for a number, no
-- sequence is shared, and an erased session is remembered by what does not tell its name.

create function {schema}.tenant() returns text
language plpgsql stable parallel safe as $$
declare
    told text := current_setting('foldline.tenant', true);
begin
    -- Once set in a connection, a setting that is gone reads as '' and no longer as an error.
    if told is null or told = '' then
        raise exception 'foldline.tenant is not set: nothing is reached without a tenant'
            using errcode = 'insufficient_privilege',
                  hint = 'call set_config(''foldline.tenant'', $1, true) in the same transaction';
    end if;
    return told;
end $$;

create table {schema}.heads (
    sid         uuid primary key,
    tenant      text collate "C" not null,
    session     text collate "C" not null,
    head        integer not null default -1,
    edit        integer not null default -1,
    floor       integer not null default 0,
    trimmed     double precision,
    size        bigint not null default 0,
    opened      double precision not null,
    changed     double precision not null,
    origin      uuid,
    origin_at   integer not null default -1,
    origin_name text collate "C" not null default '',
    fence       bigint not null default 0,
    holder      text collate "C" not null default '',
    until       double precision not null default 0,
    held        boolean not null default false,
    indexed     integer not null default -1,
    behind      boolean not null default false
) with (fillfactor = 60);  -- every append moves a head: room to do so in its own page
create index heads_by_name on {schema}.heads (tenant, session);

create table {schema}.events (
    sid    uuid not null,
    seq    integer not null,
    edit   boolean not null,
    time   double precision not null,
    tenant text collate "C" not null,
    kind   text collate "C" not null,
    pieces text collate "C",
    sha256 bytea not null,
    body   bytea not null,
    primary key (sid, seq)
) partition by hash (sid);
create index edits on {schema}.events (sid, seq) where edit;

create table {schema}.seen (
    sid    uuid not null,
    key    bytea not null,
    seq    integer not null,
    tenant text collate "C" not null,
    primary key (sid, key)
) partition by hash (sid);

create table {schema}.blobs (
    sid    uuid not null,
    hash   text collate "C" not null,
    tenant text collate "C" not null,
    body   bytea not null,
    primary key (sid, hash)
) partition by hash (sid);

create table {schema}.side (
    sid     uuid not null,
    space   text collate "C" not null,
    key     text collate "C" not null,
    tenant  text collate "C" not null,
    value   bytea not null,
    version bigint not null,
    expires double precision,
    primary key (sid, space, key)
);

create table {schema}.erased (
    sid    uuid primary key,
    tenant text collate "C" not null,
    time   double precision not null,
    swept  boolean not null default false
);
create index unswept on {schema}.erased (tenant) where not swept;

-- Sessions that have rows which no search knows yet. A flag in `heads` with an index on it would
-- make every move of a head write to that index.
create table {schema}.unindexed (
    tenant text collate "C" not null,
    sid    uuid not null,
    primary key (tenant, sid)
);

create table {schema}.words (
    sid    uuid not null,
    seq    integer not null,
    time   double precision not null,
    tenant text collate "C" not null,
    found  tsvector not null,
    primary key (sid, seq)
);
create index words_found on {schema}.words using gin (found) with (fastupdate = off);

do $$
declare
    parent text;
    part text;
begin
    begin
        alter table {schema}.events alter column body set compression lz4;
        alter table {schema}.blobs alter column body set compression lz4;
    exception when feature_not_supported then
        raise notice 'this server has no lz4: bodies are kept by its own compression';
    end;
    foreach parent in array array['events', 'seen', 'blobs'] loop
        for bucket in 0..63 loop
            part := format('%s_%s', parent, lpad(bucket::text, 2, '0'));
            execute format(
                'create table {schema}.%I partition of {schema}.%I '
                'for values with (modulus 64, remainder %s)', part, parent, bucket);
            -- Without a policy nobody reads a partition beside its parent.
            execute format('alter table {schema}.%I enable row level security', part);
            execute format('alter table {schema}.%I force row level security', part);
        end loop;
    end loop;
    foreach parent in array
        array['heads', 'events', 'seen', 'blobs', 'side', 'erased', 'unindexed'] loop
        execute format('alter table {schema}.%I enable row level security', parent);
        execute format('alter table {schema}.%I force row level security', parent);
        -- Where many rows are read the tenant is asked for once; a single row is checked directly.
        execute format(
            'create policy tenants on {schema}.%I using (tenant = %s) '
            'with check (tenant = {schema}.tenant())', parent,
            case when parent in ('events', 'blobs') then '(select {schema}.tenant())'
            else '{schema}.tenant()' end);
    end loop;
    -- Not forced: the definer functions of 004 read it as its owner, and nobody else may.
    alter table {schema}.words enable row level security;
end $$;
