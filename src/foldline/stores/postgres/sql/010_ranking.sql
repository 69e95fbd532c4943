-- lives-with: 1
-- Ranked search: rows of postings instead of a tsvector for each message. stores/search_ranking.py
-- says how they are packed. Terms are marked by their tenant, so an index entry is one tenant's alone.
-- Earlier releases go on with all but their search, which says what to do.

create table {schema}.postings (
    term   bigint not null,
    sid    uuid not null,
    block  integer not null,
    packed bytea not null,
    primary key (term, sid, block)
);
create index postings_by_session on {schema}.postings (sid);
alter table {schema}.postings alter column packed set storage external;  -- compressed, it is no smaller
-- Not forced: the functions below read it as its owner, and nobody else may.
alter table {schema}.postings enable row level security;

-- Every session is indexed anew; for that the owner looks at all tenants.
delete from {schema}.words;
alter table {schema}.heads no force row level security;
alter table {schema}.unindexed no force row level security;
update {schema}.heads set indexed = -1, behind = true where head >= 0;
insert into {schema}.unindexed (tenant, sid)
    select tenant, sid from {schema}.heads where head >= 0 on conflict do nothing;
alter table {schema}.heads force row level security;
alter table {schema}.unindexed force row level security;

create function {schema}.spoken_between(p_tenant text, p_sid uuid, p_from integer, p_to integer)
returns table (seq integer, body bytea)
language plpgsql set plan_cache_mode = force_custom_plan as $$
begin
    return query select e.seq, e.body from {schema}.events as e
        where e.sid = p_sid and e.seq between p_from and p_to
        and e.kind in ('user_said', 'model_said', 'tool_returned') order by e.seq limit 500;
end $$;

-- Add the postings of some rows, unless another did; whether it was done.
create function {schema}.post(
    p_tenant text, p_sid uuid, p_from integer, p_to integer,
    p_terms bigint[], p_blocks integer[], p_bodies bytea[]
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    ends integer;
begin
    perform {schema}.own(p_tenant);
    select head into ends from {schema}.heads
        where sid = p_sid and tenant = p_tenant and indexed = p_from for update;
    if not found then
        return false;
    end if;
    insert into {schema}.postings as p (term, sid, block, packed)
        select t, p_sid, b, y from unnest(p_terms, p_blocks, p_bodies) as given (t, b, y)
        on conflict (term, sid, block) do update set packed = p.packed || excluded.packed;
    update {schema}.heads set indexed = p_to, behind = p_to < ends where sid = p_sid;
    if p_to >= ends then
        delete from {schema}.unindexed where tenant = p_tenant and sid = p_sid;
    end if;
    return true;
end $$;

-- The postings of some terms in a tenant's sessions, an owner's, or one; of the first only how many.
create function {schema}.postings_of(
    p_tenant text, p_sid uuid, p_owner text, p_every bigint, p_terms bigint[]
) returns table (
    term bigint, session text, changed double precision, block integer, count integer, body bytea
)
language plpgsql security definer set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan as $$
begin
    perform {schema}.own(p_tenant);
    return query
        select p.term, h.session, h.changed, p.block, octet_length(p.packed) / 4,
            case when p.term = p_every then '' else p.packed end
        from {schema}.postings as p join {schema}.heads as h on h.sid = p.sid
        where p.term = any (p_terms) and h.tenant = p_tenant
            and (p_sid is null or p.sid = p_sid)
            and (p_owner is null or h.owner_name = p_owner);
end $$;

-- Leave no posting of a session in the index. Where some of its rows stay, the next search indexes
-- them anew.
create or replace function {schema}.forget(
    p_tenant text, p_sid uuid, p_floor integer, p_keep integer[]
) returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform {schema}.own(p_tenant);
    delete from {schema}.postings where sid = p_sid;
    if p_floor is not null then
        update {schema}.heads set indexed = -1, behind = true
            where sid = p_sid and tenant = p_tenant;
        insert into {schema}.unindexed (tenant, sid) values (p_tenant, p_sid)
            on conflict do nothing;
    end if;
end $$;

-- What earlier releases call.
create or replace function {schema}.learn(
    p_tenant text, p_sid uuid, p_from integer, p_to integer,
    p_seqs integer[], p_times double precision[], p_words text[]
) returns boolean
language sql security definer set search_path = pg_catalog, pg_temp as $$ select false $$;

create or replace function {schema}.search(
    p_tenant text, p_sid uuid, p_query text, p_limit integer
) returns table (session text, seq integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform {schema}.own(p_tenant);
    raise exception 'this database has the index of a later release; upgrade foldline to search it'
        using errcode = 'feature_not_supported';
end $$;

create or replace function {schema}.search_of(
    p_tenant text, p_sid uuid, p_query text, p_limit integer, p_owner text
) returns table (session text, seq integer)
language sql security definer set search_path = pg_catalog, pg_temp as $$
    select * from {schema}.search(p_tenant, p_sid, p_query, p_limit)
$$;

do $$
declare
    made text;
begin
    foreach made in array array[
        'spoken_between(text, uuid, integer, integer)',
        'post(text, uuid, integer, integer, bigint[], integer[], bytea[])',
        'postings_of(text, uuid, text, bigint, bigint[])'
    ] loop
        execute format('revoke all on function {schema}.%s from public', made);
        if exists (select from pg_roles where rolname = '{role}') then
            execute format('grant execute on function {schema}.%s to {role}', made);
        end if;
    end loop;
end $$;
