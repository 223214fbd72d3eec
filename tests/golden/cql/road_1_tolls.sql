-- Linear Road: the toll of each car that enters a segment, 0 where there is none.
Register Stream Input (kind integer, second integer, car integer, speed number 'mile/h', xway integer, lane integer,
  dir integer, seg integer, pos integer, request integer, seg_from integer, seg_to integer, weekday integer,
  minute_of_day integer, day integer) Rate 1000 Per Second;
Register Relation Segment (xway integer, seg integer) Static;
Register Relation History (car integer, day integer, xway integer, toll number) Static;

Create View Report As Select car, speed, xway, lane, dir, seg, pos From Input Where kind = 0;
Create View Position As Select distinct car, xway, dir, lane, seg, pos From Report [Range 120 Seconds];
Create View Still As
Select car, xway, dir, lane, seg, pos From Report [Partition By car Rows 4]
Group By car, xway, dir, lane, seg, pos Having count(*) = 4;
Create View Stopped As Select * From Still Intersect Select * From Position;
Create View Accident As
Select xway, dir, seg From Stopped Group By xway, dir, lane, seg, pos Having count(distinct car) > 1;
Create View Affected As
Select a.xway, a.dir, s.seg From Accident a, Segment s
Where a.dir = 0 And s.xway = a.xway And s.seg Between a.seg - 4 And a.seg
Union
Select a.xway, a.dir, s.seg From Accident a Join Segment s On s.xway = a.xway And s.seg Between a.seg And a.seg + 4
Where a.dir = 1;
Create View CarSpeed As
Select xway, dir, seg, car, avg(speed) As speed From Report [Range 61 Seconds Slide 1 Minute] Group By xway, dir, seg, car;
Create View Minute As
Select xway, dir, seg, count(*) As cars, avg(speed) As speed From CarSpeed Group By xway, dir, seg;
Create View Speed As
Select xway, dir, seg, avg(speed) As speed From Rstream(Select xway, dir, seg, speed From Minute) [Range 5 Minutes]
Group By xway, dir, seg;
Create View Toll As
Select m.xway, m.dir, m.seg, power(m.cars - 50, 2) As toll, s.speed From Minute m, Speed s
Where m.xway = s.xway And m.dir = s.dir And m.seg = s.seg And m.cars > 50 And s.speed < '40 mile/h'
  And (m.xway, m.dir, m.seg) Not In (Select xway, dir, seg From Affected);
Create View Active As Select distinct car, xway, dir, seg From Report [Range 30 Seconds] Where lane <> 4;
Create View Gone As
Select car From Report [Range 60 Seconds] Except Select car From Report [Range 30 Seconds];
Create View Entry As Istream(Select car, xway, dir, seg From Active);
Create View Charge As
Rstream(Select e.car, t.toll, t.speed From Entry [Now] e, Toll t Where e.xway = t.xway And e.dir = t.dir And e.seg = t.seg);
Create View Balance As Select car, sum(toll) As balance From Charge Group By car;

Select Istream(car, toll, speed) From Charge
Union All
Select Rstream(e.car, 0.0, null) From Entry [Now] e Where (e.xway, e.dir, e.seg) Not In (Select xway, dir, seg From Toll)
