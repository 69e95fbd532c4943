-- lives-with: 1
-- Several appends of any number of rows without pieces, every one a transaction of its own, in one
-- round trip and under one flush, as append_all does for those of one row. The rows of all follow
-- each other; `p_ends` says where those of each end.

create procedure {schema}.append_each(
    p_tenants text[], p_sids uuid[], p_sessions text[], p_afters integer[], p_fences bigint[],
    p_onces bytea[], p_newest integer[], p_sizes bigint[], p_ends integer[],
    p_kinds text[], p_edits boolean[], p_times double precision[], p_sha256s bytea[],
    p_bodies bytea[],
    inout outcomes integer[], inout places bigint[], inout moments double precision[]
) language plpgsql as $$
declare
    told record;
    lo integer := 1;
    hi integer;
begin
    for n in 1..cardinality(p_sids) loop
        perform set_config('synchronous_commit', 'off', true),
            set_config('foldline.tenant', p_tenants[n], true);
        hi := p_ends[n];
        told := {schema}.append(p_tenants[n], p_sids[n], p_sessions[n], p_afters[n], p_fences[n],
            p_onces[n], p_newest[n], p_sizes[n], p_kinds[lo:hi], p_edits[lo:hi], p_times[lo:hi],
            null, p_sha256s[lo:hi], p_bodies[lo:hi], null, null);
        outcomes[n] := told.outcome;
        places[n] := told.place;
        moments[n] := told.moment;
        lo := hi + 1;
        commit;
    end loop;
    perform pg_logical_emit_message(true, 'foldline', '');  -- a commit of nothing flushes nothing
end $$;

do $$
begin
    revoke all on procedure {schema}.append_each from public;
    if exists (select from pg_roles where rolname = '{role}') then
        grant execute on procedure {schema}.append_each to {role};
    end if;
end $$;
