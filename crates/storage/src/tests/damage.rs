//! Damage to what was synced: it is told, and nothing wrong is served.

use std::{fs, io::BufReader, path::Path};

use curtail_types::KeyHash;
use curtail_workload::Random;

use crate::{
    ItemImage, StorageConfig, StorageError,
    engine::Engine,
    export_import,
    pending_keys::{self, KeyLock},
    planted_fault::{PlantedFault, plant},
};

const ITEMS: u32 = 400;

/// A directory with tables and a log, ended on purpose.
fn filled(dir: &Path) {
    let engine = std::sync::Arc::new(Engine::open(StorageConfig::of_tool(dir), true).unwrap());
    for number in 0..ITEMS {
        let key = format!("key-{number}");
        let hash = KeyHash(u64::from(number));
        let image = image_of(number);
        let value = vec![number as u8; 100 + number as usize];
        KeyLock::new(&engine, hash).put(key.as_bytes(), hash, &image, &value);
        engine.commit();
        if number == ITEMS / 2 {
            assert!(engine.rotate_if(0) && engine.flush());
        }
    }
    engine.seal();
}

fn image_of(number: u32) -> ItemImage {
    ItemImage {
        cas: u64::from(number) + 1,
        flags: number,
        stale: number.is_multiple_of(2),
        won: number.is_multiple_of(3),
        ..ItemImage::default()
    }
}

/// Whether every item is there and as it was written.
fn is_whole(dir: &Path) -> Result<bool, StorageError> {
    let engine = Engine::open(StorageConfig::of_tool(dir), false)?;
    for number in 0..ITEMS {
        let Ok(found) = engine.read(format!("key-{number}").as_bytes()) else {
            return Ok(false);
        };
        let Some(item) = found else {
            panic!("item {number} is lost without a word");
        };
        assert_eq!(item.value(), vec![number as u8; 100 + number as usize]);
        assert_eq!(item.image(), image_of(number));
    }
    Ok(true)
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, &target).unwrap();
    }
}

/// Changes bits of one file after the other; tells how many changes passed unseen by opening,
/// reading and verifying.
fn unseen(seed: u64, changes: usize) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    filled(&whole);
    let mut random = Random::new(seed);
    let mut unseen = Vec::new();
    for change in 0..changes {
        let dir = folder.path().join(format!("{change}"));
        copy(&whole, &dir);
        let data = files(&dir);
        let data: Vec<_> = data
            .iter()
            .filter(|file| file.file_name().is_some_and(|name| name != "LOCK"))
            .filter(|file| fs::metadata(file).unwrap().len() > 0)
            .collect();
        let file = data[random.below(data.len() as u64) as usize];
        let mut bytes = fs::read(file).unwrap();
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        fs::write(file, bytes).unwrap();
        let name = file.strip_prefix(&dir).unwrap().display().to_string();
        let opened = std::panic::catch_unwind(|| is_whole(&dir));
        let served = matches!(opened, Ok(Ok(true)));
        let lost = opened.is_err();
        // Opening may have cut or compacted what was damaged: look at a fresh copy.
        if served || lost {
            let verified = crate::verify(&dir).map(|report| report.damage.is_empty());
            if lost || verified.unwrap_or(false) {
                unseen.push(format!("{name} at {at}, lost: {lost}"));
            }
        }
        fs::remove_dir_all(dir).unwrap();
    }
    unseen
}

/// Goal: no changed bit of a directory leads to a wrong or missing item without an error. Method:
/// bits of all files are changed, one at a time; those that nothing notices may not matter to any
/// item. A changed seed in the format
/// file would make the whole log look torn.
#[test]
fn a_changed_bit_is_told_or_harmless() {
    let unseen = unseen(1, 150);
    let harmful: Vec<_> = unseen
        .iter()
        .filter(|what| what.ends_with("true"))
        .collect();
    assert!(harmful.is_empty(), "{harmful:?}");
}

/// Goal: the test above can fail, and passes a directory without damage. Method: damage to the log
/// is cut off as if a crash had torn it.
#[test]
fn damage_that_is_cut_off_is_caught() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    assert!(is_whole(folder.path()).unwrap());
    plant(Some(PlantedFault::CutsDamage));
    let unseen = unseen(1, 60);
    plant(None);
    assert!(
        unseen.iter().any(|what| what.ends_with("true")),
        "{unseen:?}"
    );
}

/// Goal: verification passes what is whole, and names the file that is not. Method: a byte of a
/// table and one of the log.
#[test]
fn verification_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    filled(&whole);
    let report = crate::verify(&whole).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert!(report.files >= 2 && report.records >= u64::from(ITEMS));
    let table = files(&whole.join("tables").join("tables")).pop().unwrap();
    let log = files(&whole.join("log")).pop().unwrap();
    for file in [table, log] {
        let dir = folder.path().join("damaged");
        copy(&whole, &dir);
        let file = dir.join(file.strip_prefix(&whole).unwrap());
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
        let report = crate::verify(&dir).unwrap();
        let told: Vec<String> = report.damage.iter().map(ToString::to_string).collect();
        let name = file.display().to_string();
        assert!(
            told.iter().any(|what| what.contains(&name)),
            "{name}: {told:?}"
        );
        fs::remove_dir_all(dir).unwrap();
    }
}

/// Goal: an export is the whole of a directory, and a torn or changed one is refused. Method: to
/// another directory and back; with a line missing, and with a byte changed.
#[test]
fn an_export_is_imported_whole_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    filled(&from);
    let mut text = Vec::new();
    let exported = export_import::export(&from, 0, &mut text).unwrap();
    assert_eq!(exported, u64::from(ITEMS));
    let to = folder.path().join("to");
    let imported = export_import::import(&to, 0, &mut BufReader::new(&text[..])).unwrap();
    assert_eq!(imported, exported);
    assert!(is_whole(&to).unwrap());
    let mut again = Vec::new();
    export_import::export(&to, 0, &mut again).unwrap();
    assert!(text == again);
    let third = folder.path().join("third");
    let torn = &text[..text.len() - 30];
    let error = export_import::import(&third, 0, &mut BufReader::new(torn)).unwrap_err();
    assert!(error.to_string().contains("items"), "{error}");
    let mut changed = text.clone();
    changed[40] = if changed[40] == b'B' { b'C' } else { b'B' };
    assert!(export_import::import(&third, 0, &mut BufReader::new(&changed[..])).is_err());
}

/// Goal: the tools find in a directory what a server would find there after a planned flush:
/// nothing that was written before it, and everything that is imported after it. Method: before and
/// after its time.
#[test]
fn a_planned_flush_holds_for_the_tools() {
    const AT: u32 = 1000;
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    filled(&dir);
    let plan = || {
        let engine = Engine::open(StorageConfig::of_tool(&dir), false).unwrap();
        pending_keys::flush_all(&engine, AT, || ());
        assert!(engine.commit());
    };
    plan();
    let mut text = Vec::new();
    let exported = export_import::export(&dir, AT - 1, &mut text).unwrap();
    assert_eq!(exported, u64::from(ITEMS));
    assert_eq!(export_import::export(&dir, AT, &mut Vec::new()).unwrap(), 0);
    plan();
    export_import::import(&dir, AT, &mut BufReader::new(&text[..])).unwrap();
    let info = crate::info(&dir, AT + 1).unwrap();
    assert_eq!((info.items, info.flush_at), (u64::from(ITEMS), 0));
}
