-- Segments of the road with an accident (Babu, figure 6.19).
Register Stream CarStr (cid integer, xpos integer, sid integer);

Select distinct sid From
 (Select cid, sid From (CarStr [Partition By cid Rows 1]) as LastRep, (Select distinct cid From CarStr [Range 30 seconds]) as CurActiveCars
  Where LastRep.cid = CurActiveCars.cid) as CurCarSeg,
 (Select cid From CarStr [Partition By cid Rows 4] Group By cid Having count (distinct xpos) = 1 and count(*) = 4) as AccCars
Where CurCarSeg.cid = AccCars.cid
