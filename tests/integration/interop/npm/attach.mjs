// With sigstore's library for Node: say the digest of a tag, and attach a bundle to it.
// Usage: node attach.mjs HOST/REPOSITORY TAG [BUNDLE PREDICATE-TYPE [USER PASSWORD]]
import { readFileSync } from 'node:fs';
import { attachArtifactToImage, getImageDigest } from '@sigstore/oci';

const [imageName, imageTag, bundle, predicateType, username, password] = process.argv.slice(2);
const credentials = username && { username, password };
const imageDigest = await getImageDigest({ imageName, imageTag, credentials });
console.log(imageDigest);
if (bundle) {
  const attached = await attachArtifactToImage({
    imageName,
    imageDigest,
    credentials,
    artifact: readFileSync(bundle),
    mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
    annotations: {
      'dev.sigstore.bundle.content': 'dsse-envelope',
      'dev.sigstore.bundle.predicateType': predicateType,
    },
  });
  console.log(attached.digest);
}
