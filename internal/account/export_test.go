package account

// Appointments is how many entries the calendar of subscriptions has.
func (d *Directory) Appointments() int { return len(d.calendar) }
