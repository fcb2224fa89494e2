# What Perl's two memcached clients see of a server: one line for each thing they did.
use strict;
use warnings;
use Cache::Memcached;
use Cache::Memcached::Fast;

my $address = "127.0.0.1:$ARGV[0]";
my $binary = join '', map { chr } 0 .. 255;
my $large = 'large value ' x 20_000;

sub shown {
    my ($value) = @_;
    return 'undef' unless defined $value;
    return 'empty' if $value eq '';
    return length($value) . ' bytes' if length $value > 40;
    return $value;
}

sub tell_all {
    my ($name, $client) = @_;
    my $step = 0;
    my $say = sub {
        my ($what, @values) = @_;
        printf "%s %02d %s: %s\n", $name, ++$step, $what, join ' ', map { shown($_) } @values;
    };
    $client->flush_all;
    $say->('get of nothing', $client->get('none'));
    $say->('set', $client->set('a', 'one'), $client->get('a'));
    $say->('add', $client->add('a', 'x'), $client->add('b', 'two'));
    $say->('replace', $client->replace('a', 'three'), $client->replace('none', 'x'));
    my $found = $client->get_multi(qw(a b none));
    $say->('get of many', map { "$_=$found->{$_}" } sort keys %$found);
    $say->('delete', $client->delete('a'), $client->delete('a'));
    $say->('count', $client->set('n', 10), $client->incr('n', 5), $client->decr('n', 20));
    $say->('count of nothing', $client->incr('none', 1));
    $say->('binary', $client->set('bytes', $binary), $client->get('bytes') eq $binary);
    $say->('empty', $client->set('empty', ''), $client->get('empty'));
    $say->('large', $client->set('large', $large), $client->get('large') eq $large);
    $say->('too large', $client->set('large', 'x' x (3 << 20)), $client->get('large'));
    $say->('expiry', $client->set('brief', 'x', 1), $client->get('brief'));
    sleep 3;
    $say->('expired', $client->get('brief'));
    if ($client->can('append')) {
        $say->('append', $client->set('j', 'b'), $client->append('j', 'c'),
            $client->prepend('j', 'a'), $client->get('j'));
    }
    if ($client->can('gets')) {
        my $pair = $client->gets('b');
        $say->('cas', $client->cas('b', $pair->[0], 'new'), $client->cas('b', $pair->[0], 'late'),
            $client->get('b'));
    }
    if ($client->can('touch')) {
        $say->('touch', $client->touch('b', 100), $client->touch('none', 100));
    }
    my $structure = { list => [ 1, 2, 3 ], text => 'deep' };
    $say->('structure', $client->set('s', $structure), $client->get('s')->{list}[2]);
    $say->('flush', $client->flush_all ? 'done' : 'refused', $client->get('b'));
}

tell_all('Cache::Memcached', Cache::Memcached->new({ servers => [$address] }));
tell_all('Cache::Memcached::Fast', Cache::Memcached::Fast->new({ servers => [$address] }));
my $stats = Cache::Memcached->new({ servers => [$address] })->stats(['misc']);
my $misc = $stats->{hosts}{$address}{misc};
print 'stats: ', join(' ', map { defined $misc->{$_} ? $_ : "no $_" }
    qw(pid uptime version curr_items total_items bytes cmd_get cmd_set get_hits evictions)), "\n";
