-- lives-with: 1
-- Rows of some spans, always by their index. The server cannot know how long a span is and takes it
-- for a ninth of what there is: once analyzed, the partition of a long session was read from end to
-- end for its tail. `offset 0` keeps the spans outside: each is looked for by itself.

create or replace function {schema}.read(
    p_tenant text, p_sid uuid, p_los integer[], p_his integer[]
) returns table (
    seq integer, kind text, edit boolean, "time" double precision, sha256 bytea, body bytea,
    pieces text
) language plpgsql stable
set plan_cache_mode = force_custom_plan set enable_bitmapscan = off set enable_seqscan = off as $$
declare
    known record;
    owner uuid := p_sid;
    most integer := 2147483647;
    wanted bigint;
    given bigint;
begin
    loop
        select h.head, h.origin, h.origin_at into known from {schema}.heads as h
            where h.sid = owner;
        exit when not found;
        return query
            select e.seq, e.kind, e.edit, e.time, e.sha256, e.body, e.pieces
            from unnest(p_los, p_his) as span (lo, hi)
            cross join lateral (
                select * from {schema}.events as v
                where v.sid = owner and v.seq between span.lo and least(span.hi, most)
                offset 0
            ) as e;
        exit when known.origin is null;
        get diagnostics given = row_count;
        select sum(least(hi, known.head, most) - lo + 1) into wanted
            from unnest(p_los, p_his) as span (lo, hi) where lo <= least(hi, known.head, most);
        exit when given >= coalesce(wanted, 0);  -- all of it was copied
        most := least(most, known.origin_at);
        owner := known.origin;
    end loop;
end $$;
